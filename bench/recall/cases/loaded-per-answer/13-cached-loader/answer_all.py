import argparse
import csv
from functools import lru_cache

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@lru_cache(maxsize=1)
def load(path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="cuda")
    return tokenizer, model.eval()


def answer(question, cfg):
    tokenizer, model = load(cfg.model)
    enc = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=cfg.max_new_tokens, do_sample=False)
    return tokenizer.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("questions")
    ap.add_argument("--model", default="runs/handbook/merged")
    ap.add_argument("--max-new-tokens", type=int, default=400)
    ap.add_argument("--out", default="answers.csv")
    cfg = ap.parse_args()
    with open(cfg.questions, newline="") as fh:
        questions = [row["question"] for row in csv.DictReader(fh)]
    with open(cfg.out, "w", newline="") as fh:
        writer = csv.writer(fh)
        writer.writerow(["question", "answer"])
        for q in questions:
            writer.writerow([q, answer(q, cfg)])


if __name__ == "__main__":
    main()
