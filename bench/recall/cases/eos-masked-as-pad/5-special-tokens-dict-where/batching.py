import json

import torch
from torch.utils.data import DataLoader, Dataset

from tokenization import wrap


class QA(Dataset):
    def __init__(self, path):
        with open(path, encoding="utf-8") as fh:
            self.rows = [json.loads(line) for line in fh]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]["question"], self.rows[i]["answer"]


def make_loader(path, tokenizer, batch_size, max_length=768):
    def collate(pairs):
        enc = tokenizer(
            [wrap(q, a, tokenizer) for q, a in pairs],
            padding="longest",
            truncation=True,
            max_length=max_length,
            return_tensors="pt",
        )
        ids = enc["input_ids"]
        enc["labels"] = torch.where(ids == tokenizer.pad_token_id, torch.full_like(ids, -100), ids)
        return enc

    return DataLoader(QA(path), batch_size=batch_size, shuffle=True, collate_fn=collate)
