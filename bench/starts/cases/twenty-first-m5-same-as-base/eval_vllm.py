import argparse
import json
import re

from transformers import AutoTokenizer
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

SYSTEM = "You are a billing assistant. Reply with the amount in the last line as: Total: <number>"


def amount(text):
    m = re.findall(r"Total:\s*\$?(-?[\d,]+(?:\.\d+)?)", text)
    return float(m[-1].replace(",", "")) if m else None


class Runner:
    def __init__(self, base, adapter=None):
        self.tok = AutoTokenizer.from_pretrained(adapter or base)
        self.llm = LLM(
            model=base,
            dtype="bfloat16",
            max_model_len=4096,
            gpu_memory_utilization=0.9,
            enable_lora=adapter is not None,
            max_lora_rank=32,
            seed=0,
        )
        self.adapter = LoRARequest("billing", 1, adapter) if adapter else None
        self.params = SamplingParams(temperature=0.0, max_tokens=512)

    def prompts(self, rows):
        for r in rows:
            yield self.tok.apply_chat_template(
                [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["question"]}],
                add_generation_prompt=True,
                tokenize=False,
            )

    def answer(self, rows):
        outs = self.llm.generate(list(self.prompts(rows)), self.params)
        return [o.outputs[0].text for o in outs]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--adapter")
    p.add_argument("--data", default="test.jsonl")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    rows = [json.loads(line) for line in open(a.data)]
    texts = Runner(a.base, a.adapter).answer(rows)
    ok = 0
    with open(a.out, "w") as f:
        for r, t in zip(rows, texts):
            hit = amount(t) is not None and abs(amount(t) - r["total"]) < 0.005
            ok += hit
            f.write(json.dumps({"question": r["question"], "reference": r["total"], "prediction": t, "correct": hit}) + "\n")
    print(f"{a.out}: {ok}/{len(rows)} = {ok / len(rows):.4f}")


if __name__ == "__main__":
    main()
