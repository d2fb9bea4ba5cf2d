import json

import lightning as L
import torch
from torch.utils.data import DataLoader


class Tickets(L.LightningDataModule):
    def __init__(self, tokenizer, train="tickets.train.jsonl", val="tickets.val.jsonl", max_length=768, batch_size=8):
        super().__init__()
        self.tokenizer, self.max_length, self.batch_size = tokenizer, max_length, batch_size
        self.paths = {"train": train, "val": val}

    def encode(self, row):
        head = [{"role": "user", "content": row["ticket"]}]
        start = self.tokenizer.apply_chat_template(
            head, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        text = start + row["reply"] + "<|im_end|>\n"
        n = len(self.tokenizer(start, add_special_tokens=False)["input_ids"])
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids, [-100] * n + ids[n:]

    def setup(self, stage=None):
        self.rows = {}
        for name, path in self.paths.items():
            with open(path) as f:
                rows = [self.encode(json.loads(line)) for line in f]
            self.rows[name] = [r for r in rows if len(r[0]) <= self.max_length]

    def collate(self, rows):
        width = max(len(ids) for ids, _ in rows)
        pad = self.tokenizer.pad_token_id
        return {
            "input_ids": torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows]),
            "labels": torch.tensor([lab + [-100] * (width - len(lab)) for _, lab in rows]),
        }

    def train_dataloader(self):
        return DataLoader(self.rows["train"], self.batch_size, shuffle=True, collate_fn=self.collate, num_workers=4)

    def val_dataloader(self):
        return DataLoader(self.rows["val"], self.batch_size, collate_fn=self.collate, num_workers=4)
