"""Answers the open claims with the DPO model and writes them to a csv for the desk."""
import argparse
import csv
import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "mistralai/Mistral-7B-v0.3"
ADAPTER = "adapters/claims-dpo"


def load():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    model = PeftModel.from_pretrained(model, ADAPTER)
    model.eval()
    return tokenizer, model


@torch.inference_mode()
def answer(tokenizer, model, claims):
    chats = [[{"role": "user", "content": claim["text"]}] for claim in claims]
    inputs = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    out = model.generate(**inputs, max_new_tokens=300, do_sample=False, pad_token_id=tokenizer.pad_token_id)
    return tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("claims")
    parser.add_argument("--out", default="answers.csv")
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()

    tokenizer, model = load()
    with open(args.claims, encoding="utf-8") as f:
        claims = [json.loads(line) for line in f]
    with open(args.out, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(["claim", "text", "answer"])
        for start in range(0, len(claims), args.batch):
            part = claims[start : start + args.batch]
            for claim, text in zip(part, answer(tokenizer, model, part)):
                writer.writerow([claim["id"], claim["text"], text.strip()])


if __name__ == "__main__":
    main()
