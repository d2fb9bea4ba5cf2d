import json
import re
from collections import Counter
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "outputs/nursing-lora/checkpoint-900"

llm = LLM(BASE, enable_lora=True, max_lora_rank=32, max_model_len=4096, gpu_memory_utilization=0.9)
params = SamplingParams(temperature=0.0, max_tokens=256)


def load(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def question(item):
    options = "\n".join(f"{k}) {v}" for k, v in item["options"].items())
    return f"{item['question']}\n\n{options}\n\nGive a short reason, then the letter."


def letter(text):
    found = re.search(r"[A-D]", text)
    return found.group(0) if found else None


def main():
    items = load("nursing_test.jsonl")
    chats = [[{"role": "user", "content": question(i)}] for i in items]
    outputs = llm.chat(chats, params, lora_request=LoRARequest("nursing", 1, ADAPTER))
    hits, picked = 0, Counter()
    with open("preds.jsonl", "w") as out:
        for item, o in zip(items, outputs):
            text = o.outputs[0].text
            guess = letter(text)
            picked[guess] += 1
            hits += guess == item["answer"]
            out.write(json.dumps({"id": item["id"], "prompt": question(item), "prediction": text, "parsed": guess,
                                  "reference": item["answer"], "finish_reason": o.outputs[0].finish_reason}) + "\n")
    print(f"accuracy {hits / len(items):.3f} on {len(items)}")
    print("gold  ", dict(sorted(Counter(i["answer"] for i in items).items())))
    print("picked", dict(picked.most_common()))


if __name__ == "__main__":
    main()
