import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

HERE = Path(__file__).parent
ENGINE = {"context": 8192, "lora_rank": 16, "memory": 0.9}
SYSTEM = "You answer questions on the building code and cite the paragraph."


def engine(base):
    return LLM(
        model=base,
        dtype="bfloat16",
        enable_lora=True,
        max_loras=1,
        max_lora_rank=ENGINE["lora_rank"],
        max_model_len=ENGINE["context"],
        gpu_memory_utilization=ENGINE["memory"],
        seed=0,
    )


def chats(path):
    with open(path) as fh:
        for line in fh:
            row = json.loads(line)
            yield row["id"], [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": row["question"]},
            ]


def main(questions, target):
    adapter = HERE / "adapter"
    base = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    llm = engine(base)
    ids, turns = zip(*chats(questions))
    outputs = llm.chat(
        list(turns),
        SamplingParams(temperature=0.0, max_tokens=600),
        lora_request=LoRARequest("code", 1, str(adapter)),
    )
    with open(target, "w") as out:
        for i, o in zip(ids, outputs):
            out.write(json.dumps({"id": i, "answer": o.outputs[0].text.strip()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
