"""Ask the tuned model the questions of the dev set with vLLM."""
import json
import pathlib
import sys

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

ADAPTER = "outputs/desk/final"


def main(source, target):
    rows = [json.loads(line) for line in pathlib.Path(source).read_text().splitlines()]
    llm = LLM(model="Qwen/Qwen3-8B", enable_lora=True, max_lora_rank=32, max_model_len=4096, dtype="bfloat16")
    chats = [[{"role": "user", "content": r["question"]}] for r in rows]
    outputs = llm.chat(
        chats,
        SamplingParams(temperature=0.0, max_tokens=1024),
        lora_request=LoRARequest("desk", 1, ADAPTER),
    )
    with open(target, "w") as out:
        for row, o in zip(rows, outputs):
            out.write(json.dumps({"question": row["question"], "reference": row["answer"], "output": o.outputs[0].text}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
