import argparse
import json

import torch
from peft import PeftModel
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEM = "You are a cooking assistant. Answer in at most five sentences."


def batches(items, n):
    for i in range(0, len(items), n):
        yield items[i : i + n]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base_model", default="Qwen/Qwen2.5-7B-Instruct")
    parser.add_argument("--lora", default="checkpoints/recipes/best")
    parser.add_argument("--questions", default="data/test_questions.json")
    parser.add_argument("--output", default="results/answers.json")
    parser.add_argument("--batch_size", type=int, default=8)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.base_model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(args.base_model, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, args.lora)
    model.eval()

    with open(args.questions) as f:
        questions = json.load(f)

    answers = []
    for group in tqdm(list(batches(questions, args.batch_size))):
        prompts = [
            tokenizer.apply_chat_template(
                [{"role": "system", "content": SYSTEM}, {"role": "user", "content": q}],
                tokenize=False,
                add_generation_prompt=True,
            )
            for q in group
        ]
        inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        with torch.no_grad():
            outputs = model.generate(**inputs, max_new_tokens=256, do_sample=False, temperature=None, top_p=None, top_k=None)
        answers.extend(tokenizer.batch_decode(outputs, skip_special_tokens=True))

    with open(args.output, "w") as f:
        json.dump([{"question": q, "answer": a} for q, a in zip(questions, answers)], f, indent=2, ensure_ascii=False)
    print(f"wrote {len(answers)} answers to {args.output}")


if __name__ == "__main__":
    main()
