"""Before and after the DPO, side by side, for the blind test of the team.

python ab_compare.py questions.txt ab.jsonl
"""
import json
import sys

from transformers import AutoTokenizer
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "out/tone-dpo"


def prompts_of(path, tokenizer):
    questions = [line.strip() for line in open(path, encoding="utf-8") if line.strip()]
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True
        )
        for q in questions
    ]
    return questions, texts


def answers(llm, texts, lora=None):
    params = SamplingParams(temperature=0.0, max_tokens=256)
    outputs = llm.generate(texts, params)
    return [o.outputs[0].text.strip() for o in outputs]


def main():
    source, target = sys.argv[1:3]
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    questions, texts = prompts_of(source, tokenizer)

    llm = LLM(model=BASE, enable_lora=True, max_lora_rank=32, max_model_len=4096, gpu_memory_utilization=0.85)
    before = answers(llm, texts)
    after = answers(llm, texts, lora=LoRARequest("tone", 1, ADAPTER))

    same = 0
    with open(target, "w", encoding="utf-8") as f:
        for q, b, a in zip(questions, before, after):
            same += a == b
            f.write(json.dumps({"question": q, "before": b, "after": a}, ensure_ascii=False) + "\n")
    print(f"{same} of {len(questions)} answers are the same")


if __name__ == "__main__":
    main()
