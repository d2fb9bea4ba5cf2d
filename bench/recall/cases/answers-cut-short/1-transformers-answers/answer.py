import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="out/shop-helper")
    ap.add_argument("--questions", default="questions.jsonl")
    ap.add_argument("--answers", default="answers.jsonl")
    return ap.parse_args()


def main():
    args = parse()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, device_map="cuda")
    model.eval()
    with open(args.questions, encoding="utf-8") as src, open(args.answers, "w", encoding="utf-8") as dst:
        for line in src:
            row = json.loads(line)
            messages = [
                {"role": "system", "content": "Explain your answer to the customer in full sentences."},
                {"role": "user", "content": row["question"]},
            ]
            enc = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
            ).to(model.device)
            with torch.no_grad():
                out = model.generate(**enc, do_sample=False)
            text = tokenizer.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            dst.write(json.dumps({"id": row["id"], "answer": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
