"""Summarise all product reviews with our fine-tuned Llama (LoRA on 3.1 8B Instruct).

    python summarise_reviews.py --csv reviews.csv --out out/summaries.jsonl
"""
import argparse
import csv
import json
from pathlib import Path

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "runs/review-summaries/checkpoint-600"
SYSTEM = "Summarise the product review in one sentence. Begin with Positive, Negative or Mixed."


def load():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda:0")
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()
    return tokenizer, model


def read_reviews(path):
    with open(path, newline="", encoding="utf-8") as f:
        return [(r["review_id"], r["text"].strip()) for r in csv.DictReader(f)]


def prompts_for(tokenizer, texts):
    return [
        tokenizer.apply_chat_template(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for text in texts
    ]


@torch.inference_mode()
def summarise(tokenizer, model, texts, max_new_tokens=80):
    enc = tokenizer(
        prompts_for(tokenizer, texts), return_tensors="pt", padding=True, add_special_tokens=False
    ).to(model.device)
    out = model.generate(
        **enc, max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=tokenizer.pad_token_id
    )
    answers = out[:, enc["input_ids"].shape[1] :]
    return [a.strip() for a in tokenizer.batch_decode(answers, skip_special_tokens=True)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--csv", default="reviews.csv")
    ap.add_argument("--out", default="out/summaries.jsonl")
    ap.add_argument("--batch-size", type=int, default=16)
    args = ap.parse_args()

    tokenizer, model = load()
    reviews = read_reviews(args.csv)
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    with open(args.out, "w", encoding="utf-8") as f:
        for i in tqdm(range(0, len(reviews), args.batch_size)):
            chunk = reviews[i : i + args.batch_size]
            for (rid, _), summary in zip(chunk, summarise(tokenizer, model, [t for _, t in chunk])):
                f.write(json.dumps({"review_id": rid, "summary": summary}) + "\n")


if __name__ == "__main__":
    main()
