import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

SYSTEM = "You answer questions on the building code and cite the paragraph."


def engine(config):
    return LLM(
        model=config["base_model_name_or_path"],
        dtype="bfloat16",
        enable_lora=True,
        max_lora_rank=max(16, config["r"]),
        max_model_len=8192,
        gpu_memory_utilization=0.9,
        seed=0,
    )


def main(questions, target):
    adapter = Path(__file__).parent / "adapter"
    llm = engine(json.loads((adapter / "adapter_config.json").read_text()))
    with open(questions) as fh:
        rows = [json.loads(line) for line in fh]
    turns = [[{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["question"]}] for r in rows]
    outputs = llm.chat(
        turns,
        SamplingParams(temperature=0.0, max_tokens=600),
        lora_request=LoRARequest("code", 1, str(adapter)),
    )
    with open(target, "w") as out:
        for row, o in zip(rows, outputs):
            out.write(json.dumps({"id": row["id"], "answer": o.outputs[0].text.strip()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
