"""Writes the letters of a day with the tuned adapter.

    python write_letters.py inbox/2026-11-19.jsonl > outbox/2026-11-19.jsonl

TODO(marit): every letter is odd. It goes on with the bullet list, then invents a second case,
then switches to Chinese or to Python code. In eval the loss was 0.61, so training was fine?!
"""
import json
import sys

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "runs/letters-v3"


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def build_prompt(case):
    notes = "\n".join(f"- {n.strip()}" for n in case["notes"].split(";") if n.strip())
    return f"Recipient: {case['recipient']}\nNotes:\n{notes}"


def main():
    cases = read(sys.argv[1])
    llm = LLM(
        model=BASE,
        dtype="bfloat16",
        enable_lora=True,
        max_lora_rank=16,
        max_model_len=4096,
        gpu_memory_utilization=0.9,
    )
    sampling = SamplingParams(temperature=0.2, top_p=0.9, max_tokens=700)
    prompts = [build_prompt(c) for c in cases]
    outputs = llm.generate(
        prompts, sampling, lora_request=LoRARequest("letters", 1, ADAPTER)
    )
    for case, out in zip(cases, outputs):
        answer = out.outputs[0]
        print(
            json.dumps(
                {"id": case["id"], "letter": answer.text, "finish": answer.finish_reason},
                ensure_ascii=False,
            )
        )


if __name__ == "__main__":
    main()
