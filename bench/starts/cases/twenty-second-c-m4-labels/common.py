import csv

import torch


def read(path):
    with open(path, newline="", encoding="utf-8") as f:
        return [(r["text"], r["category"]) for r in csv.DictReader(f)]


def label_map(rows):
    return {name: i for i, name in enumerate({c for _, c in rows})}


class Encoder:
    def __init__(self, tok, l2i, max_len=384):
        self.tok, self.l2i, self.max_len = tok, l2i, max_len

    def __call__(self, rows):
        batch = self.tok([t for t, _ in rows], padding=True, truncation=True, max_length=self.max_len, return_tensors="pt")
        batch["labels"] = torch.tensor([self.l2i[c] for _, c in rows])
        return batch
