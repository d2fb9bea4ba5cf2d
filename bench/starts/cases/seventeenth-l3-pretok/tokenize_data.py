"""Tokenise once, train many times."""
import argparse

from datasets import load_dataset
from transformers import AutoTokenizer

ap = argparse.ArgumentParser()
ap.add_argument("--tokenizer", default="meta-llama/Llama-3.1-8B")
ap.add_argument("--source", default="raw/faq.jsonl")
ap.add_argument("--dest", default="data/train_tok.parquet")
ap.add_argument("--max-len", type=int, default=1024)
args = ap.parse_args()

tok = AutoTokenizer.from_pretrained(args.tokenizer)


def enc(batch):
    out = {"input_ids": [], "labels": []}
    for q, a in zip(batch["question"], batch["answer"]):
        p = tok(f"Question: {q}\nAnswer:").input_ids
        c = tok(" " + a, add_special_tokens=False).input_ids + [tok.eos_token_id]
        out["input_ids"].append((p + c)[: args.max_len])
        out["labels"].append(([-100] * len(p) + c)[: args.max_len])
    return out


ds = load_dataset("json", data_files=args.source, split="train")
ds = ds.map(enc, batched=True, remove_columns=ds.column_names)
ds.to_parquet(args.dest)
print(ds)
