"""Ask the tuned model with vLLM.

Training went well (loss 1.9 -> 0.4, eval loss 0.5), but the answers here are word for word
those of the plain Qwen2.5-3B-Instruct: long lists with headings, nothing of our style.
"""
import json
from pathlib import Path

from vllm import LLM, SamplingParams

BASE = "Qwen/Qwen2.5-3B-Instruct"
ADAPTER = "outputs/house-style-lora"


def read_questions(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line)["question"] for line in f]


def main():
    assert (Path(ADAPTER) / "adapter_model.safetensors").exists(), "train first"
    llm = LLM(
        model=BASE,
        enable_lora=True,
        max_lora_rank=16,
        max_loras=1,
        dtype="bfloat16",
        max_model_len=4096,
        gpu_memory_utilization=0.85,
    )
    params = SamplingParams(temperature=0.0, max_tokens=300)
    questions = read_questions("data/ask.jsonl")
    conversations = [[{"role": "user", "content": q}] for q in questions]
    outputs = llm.chat(conversations, params)
    with open("answers_lora.jsonl", "w", encoding="utf-8") as f:
        for q, out in zip(questions, outputs):
            f.write(json.dumps({"question": q, "answer": out.outputs[0].text}, ensure_ascii=False) + "\n")
            print(q, "->", out.outputs[0].text[:100].replace("\n", " "))


if __name__ == "__main__":
    main()
