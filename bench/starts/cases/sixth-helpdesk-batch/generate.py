"""Batch answers of the tuned helpdesk model for the weekly review."""
import argparse
import json

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def batches(rows, size):
    for i in range(0, len(rows), size):
        yield rows[i : i + size]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="merged/helpdesk-7b")
    p.add_argument("--data", default="heldout.jsonl")
    p.add_argument("--out", default="predictions.jsonl")
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--max-new-tokens", type=int, default=160)
    a = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(a.model, padding_side="right")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token
    model = AutoModelForCausalLM.from_pretrained(a.model, torch_dtype=torch.bfloat16, device_map="cuda:0").eval()

    rows = [json.loads(line) for line in open(a.data, encoding="utf-8")]
    with open(a.out, "w", encoding="utf-8") as f:
        for part in tqdm(list(batches(rows, a.batch_size))):
            texts = [
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": r["prompt"]}], tokenize=False, add_generation_prompt=True
                )
                for r in part
            ]
            enc = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=a.max_new_tokens, do_sample=False)
            new = out[:, enc["input_ids"].shape[1] :]
            for r, ids in zip(part, new):
                text = tokenizer.decode(ids, skip_special_tokens=True).strip()
                f.write(json.dumps({"prompt": r["prompt"], "prediction": text, "reference": r["reference"]}) + "\n")


if __name__ == "__main__":
    main()
