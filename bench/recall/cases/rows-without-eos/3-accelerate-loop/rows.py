import json

import torch
from torch.utils.data import Dataset


class Pairs(Dataset):
    def __init__(self, path, tok, max_len=1024):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]
        self.tok, self.max_len = tok, max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tok(f"Customer: {row['question']}\nAgent:")["input_ids"]
        answer = self.tok(" " + row["answer"].strip(), add_special_tokens=False)["input_ids"]
        ids = (prompt + answer)[: self.max_len]
        labels = ([-100] * len(prompt) + answer)[: self.max_len]
        return {"input_ids": ids, "labels": labels}


def pad_batch(rows, pad_id):
    width = max(len(r["input_ids"]) for r in rows)
    ids = torch.full((len(rows), width), pad_id)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n] = torch.tensor(r["input_ids"])
        labels[i, :n] = torch.tensor(r["labels"])
        mask[i, :n] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}
