import argparse
import math

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from nll import batch_nll


def perplexity(model, loader):
    parts = [batch_nll(model, batch) for batch in loader]
    losses, tokens = zip(*parts)
    return math.exp(sum(losses) / sum(tokens))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("models", nargs="+")
    ap.add_argument("--data", default="data/heldout.jsonl")
    args = ap.parse_args()
    rows = load_dataset("json", data_files=args.data, split="train")
    for name in args.models:
        tok = AutoTokenizer.from_pretrained(name)
        if tok.pad_token is None:
            tok.pad_token = tok.eos_token

        def collate(batch):
            enc = tok([r["text"] for r in batch], truncation=True, max_length=2048,
                      padding=True, padding_side="right", return_tensors="pt")
            enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
            return enc

        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).to("cuda").eval()
        value = perplexity(model, DataLoader(rows, batch_size=4, collate_fn=collate))
        print(f"{name}\tppl {value:.3f}")
        del model
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
