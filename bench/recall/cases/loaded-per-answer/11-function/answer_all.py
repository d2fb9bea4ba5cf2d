"""Answer a CSV of questions with the tuned model."""
import argparse
import csv

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def answer(question, cfg):
    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16, device_map="cuda")
    model.eval()
    enc = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=cfg.max_new_tokens, do_sample=False)
    return tokenizer.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)


def read_questions(path):
    with open(path, newline="") as fh:
        return [row["question"] for row in csv.DictReader(fh)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("questions")
    ap.add_argument("--model", default="runs/handbook/merged")
    ap.add_argument("--max-new-tokens", type=int, default=400)
    ap.add_argument("--out", default="answers.csv")
    cfg = ap.parse_args()

    questions = read_questions(cfg.questions)
    answers = [answer(q, cfg) for q in questions]
    with open(cfg.out, "w", newline="") as fh:
        writer = csv.writer(fh)
        writer.writerow(["question", "answer"])
        writer.writerows(zip(questions, answers))


if __name__ == "__main__":
    main()
