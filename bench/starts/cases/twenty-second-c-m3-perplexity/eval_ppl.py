import argparse
import json
import math
import os

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_texts(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line)["text"] for line in f if line.strip()]


class Collate:
    def __init__(self, tok, max_len):
        self.tok = tok
        self.max_len = max_len

    def __call__(self, texts):
        batch = self.tok(texts, padding=True, truncation=True, max_length=self.max_len, return_tensors="pt")
        batch["labels"] = batch["input_ids"].clone()
        return batch


@torch.inference_mode()
def perplexity(model, loader):
    nll, count = 0.0, 0
    for batch in loader:
        batch = batch.to(model.device)
        out = model(**batch)
        n = (batch["labels"][:, 1:] != -100).sum().item()
        nll += out.loss.float().item() * n
        count += n
    return math.exp(nll / count), count


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("data")
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--max-len", type=int, default=2048)
    a = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16, device_map="cuda").eval()
    texts = load_texts(a.data)
    ppl, n = perplexity(model, DataLoader(texts, a.batch_size, collate_fn=Collate(tok, a.max_len)))
    print(f"{os.path.basename(a.model)} batch={a.batch_size} texts={len(texts)} tokens={n} ppl={ppl:.3f}")


if __name__ == "__main__":
    main()
