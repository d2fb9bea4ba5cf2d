"""Perplexity of base and tuned model on held-out documents."""
import argparse
import math

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def make_loader(path, tok, batch_size, max_length):
    rows = load_dataset("json", data_files=path, split="train")

    def collate(batch):
        enc = tok([r["text"] for r in batch], truncation=True, max_length=max_length,
                  padding=True, padding_side="right", return_tensors="pt")
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    return DataLoader(rows, batch_size=batch_size, shuffle=False, collate_fn=collate)


@torch.inference_mode()
def perplexity(model, loader):
    losses = []
    for batch in loader:
        batch = {k: v.to(model.device) for k, v in batch.items()}
        losses.append(model(**batch).loss.item())
    return math.exp(sum(losses) / len(losses))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("models", nargs="+")
    ap.add_argument("--data", default="data/heldout.jsonl")
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--max-length", type=int, default=2048)
    args = ap.parse_args()
    for name in args.models:
        tok = AutoTokenizer.from_pretrained(name)
        if tok.pad_token is None:
            tok.pad_token = tok.eos_token
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).to("cuda").eval()
        value = perplexity(model, make_loader(args.data, tok, args.batch_size, args.max_length))
        print(f"{name}\tppl {value:.3f}")
        del model
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
