"""Perplexity of a fine-tuned model on a text file, sliding window."""
import argparse
import math

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def windows(n, size, stride):
    prev = 0
    for begin in range(0, n, stride):
        end = min(begin + size, n)
        yield begin, end, end - prev
        prev = end
        if end == n:
            return


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="out/full/final")
    ap.add_argument("--text", default="data/heldout.txt")
    ap.add_argument("--size", type=int, default=4096)
    ap.add_argument("--stride", type=int, default=2048)
    args = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, device_map="cuda")
    model.eval()

    with open(args.text, encoding="utf-8") as fh:
        ids = tok(fh.read(), return_tensors="pt")["input_ids"]

    total_nll, total_tokens = 0.0, 0
    for begin, end, fresh in tqdm(list(windows(ids.size(1), args.size, args.stride))):
        window = ids[:, begin:end].to(model.device)
        labels = window.clone()
        labels[:, :-fresh] = -100
        out = model(input_ids=window, labels=labels)
        counted = (labels[:, 1:] != -100).sum().item()
        total_nll += out.loss.float().item() * counted
        total_tokens += counted

    print(f"tokens {total_tokens}  nll {total_nll / total_tokens:.4f}  ppl {math.exp(total_nll / total_tokens):.3f}")


if __name__ == "__main__":
    main()
