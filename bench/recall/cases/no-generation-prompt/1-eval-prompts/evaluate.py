import argparse
import json

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def build_prompt(tokenizer, row):
    messages = [
        {"role": "system", "content": "Answer the trivia question with a name, a place or a number."},
        {"role": "user", "content": row["question"]},
    ]
    return tokenizer.apply_chat_template(messages, tokenize=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    parser.add_argument("--adapter", default="runs/trivia/best")
    parser.add_argument("--data", default="data/trivia_test.jsonl")
    parser.add_argument("--out", default="runs/trivia/predictions.jsonl")
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, args.adapter).eval()

    rows = [json.loads(line) for line in open(args.data)]
    hits = 0
    with open(args.out, "w") as f:
        for i in tqdm(range(0, len(rows), args.batch_size)):
            part = rows[i : i + args.batch_size]
            enc = tokenizer(
                [build_prompt(tokenizer, r) for r in part], padding=True, add_special_tokens=False, return_tensors="pt"
            ).to(model.device)
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=24, do_sample=False, temperature=None, top_p=None, top_k=None)
            for r, text in zip(part, tokenizer.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)):
                ok = text.strip().lower() in [a.lower() for a in r["answers"]]
                hits += ok
                f.write(json.dumps({"id": r["id"], "prediction": text.strip(), "correct": ok}) + "\n")
    print(f"{hits / len(rows):.4f}")


if __name__ == "__main__":
    main()
