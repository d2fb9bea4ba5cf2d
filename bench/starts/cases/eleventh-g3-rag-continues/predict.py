#!/usr/bin/env python
"""Batch inference of the handbook QA model.

python predict.py --model runs/handbook-qa-merged --data test.jsonl --out preds.jsonl
"""
import argparse
import json

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_rows(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]


def build_prompt(tokenizer, row):
    messages = [
        {"role": "system", "content": "Answer the question from the handbook section. Answer in one sentence."},
        {"role": "user", "content": f"{row['context']}\n\nQuestion: {row['question']}"},
    ]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@torch.inference_mode()
def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", default="preds.jsonl")
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--max-new-tokens", type=int, default=128)
    args = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.bfloat16, device_map="cuda:0", attn_implementation="sdpa"
    )
    model.eval()

    rows = load_rows(args.data)
    prompts = [build_prompt(tokenizer, r) for r in rows]

    with open(args.out, "w") as out:
        for i in tqdm(range(0, len(rows), args.batch_size)):
            batch = prompts[i : i + args.batch_size]
            enc = tokenizer(
                batch,
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=512,
                add_special_tokens=False,
            ).to(model.device)
            gen = model.generate(
                **enc,
                max_new_tokens=args.max_new_tokens,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
            new = gen[:, enc["input_ids"].shape[1] :]
            texts = tokenizer.batch_decode(new, skip_special_tokens=True)
            for row, text in zip(rows[i : i + args.batch_size], texts):
                out.write(
                    json.dumps(
                        {
                            "id": row["id"],
                            "question": row["question"],
                            "reference": row["answer"],
                            "prediction": text.strip(),
                        }
                    )
                    + "\n"
                )


if __name__ == "__main__":
    main()
