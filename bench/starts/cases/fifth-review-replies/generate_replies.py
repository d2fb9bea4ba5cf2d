"""Write replies to the open reviews with the tuned adapter. Run on the 24 GB box: python generate_replies.py"""
import argparse
import csv
import json
from pathlib import Path

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

logging.set_verbosity_error()

BASE = "meta-llama/Llama-3.1-8B-Instruct"
SYSTEM = "You answer reviews of a hotel group. Be brief and friendly."


def load(adapter):
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, adapter)
    model.eval()
    return model, tokenizer


def batches(items, size):
    for i in range(0, len(items), size):
        yield items[i : i + size]


def build_prompt(tokenizer, review):
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": review},
    ]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@torch.inference_mode()
def reply_batch(model, tokenizer, reviews):
    prompts = [build_prompt(tokenizer, r) for r in reviews]
    enc = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(
        **enc,
        max_new_tokens=160,
        do_sample=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    new = out[:, enc["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new, skip_special_tokens=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapter", default="outputs/reviews-lora")
    parser.add_argument("--reviews", default="open_reviews.jsonl")
    parser.add_argument("--out", default="replies.csv")
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    model, tokenizer = load(args.adapter)
    reviews = [json.loads(line)["review"] for line in Path(args.reviews).read_text().splitlines()]
    with open(args.out, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["prompt", "reply"])
        for chunk in tqdm(list(batches(reviews, args.batch_size))):
            for review, reply in zip(chunk, reply_batch(model, tokenizer, chunk)):
                writer.writerow([review, reply.strip()])


if __name__ == "__main__":
    main()
