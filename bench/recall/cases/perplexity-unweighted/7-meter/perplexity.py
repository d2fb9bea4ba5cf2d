import argparse
import math

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


class Meter:
    def __init__(self):
        self.nll, self.count, self.shown = 0.0, 0, []

    def add(self, loss, labels):
        n = int((labels[:, 1:] != -100).sum())
        self.nll += loss.item() * n
        self.count += n
        self.shown.append(loss.item())

    def result(self):
        return perplexity(self.nll, self.count)


def perplexity(nll, count):
    return math.exp(nll / count)


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="out/final")
    ap.add_argument("--data", default="heldout.jsonl")
    a = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(a.model)
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16).cuda().eval()

    def collate(rows):
        enc = tok([r["text"] for r in rows], padding=True, truncation=True, max_length=1024, return_tensors="pt")
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    ds = load_dataset("json", data_files=a.data, split="train").filter(lambda r: len(r["text"].split()) > 3)
    meter = Meter()
    for i, batch in enumerate(DataLoader(ds, batch_size=8, collate_fn=collate)):
        batch = batch.to("cuda")
        meter.add(model(**batch).loss, batch["labels"])
        if i % 20 == 0:
            print(i, "last batch", round(meter.shown[-1], 3))
    print("perplexity", round(meter.result(), 3), "tokens", meter.count)


if __name__ == "__main__":
    main()
