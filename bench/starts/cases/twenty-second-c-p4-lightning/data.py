import json

import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer


class ChatData(L.LightningDataModule):
    def __init__(self, train, val, name="Qwen/Qwen2.5-1.5B-Instruct", batch_size=4, max_len=1024):
        super().__init__()
        self.files, self.bs, self.max_len = (train, val), batch_size, max_len
        self.tok = AutoTokenizer.from_pretrained(name)

    def _rows(self, path):
        out = []
        for line in open(path):
            row = json.loads(line)
            head = self.tok.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
            text = self.tok.apply_chat_template(row["messages"], tokenize=False)
            h = self.tok(head).input_ids
            t = self.tok(text[len(head):]).input_ids
            if len(h) + len(t) <= self.max_len:
                rating = row.get("rating")
                out.append((h + t, [-100] * len(h) + t, -1.0 if rating is None else rating / 5))
        return out

    def setup(self, stage=None):
        self.train, self.val = self._rows(self.files[0]), self._rows(self.files[1])

    def collate(self, rows):
        n = max(len(r[0]) for r in rows)
        pad = self.tok.pad_token_id
        return {
            "input_ids": torch.tensor([r[0] + [pad] * (n - len(r[0])) for r in rows]),
            "attention_mask": torch.tensor([[1] * len(r[0]) + [0] * (n - len(r[0])) for r in rows]),
            "labels": torch.tensor([r[1] + [-100] * (n - len(r[1])) for r in rows]),
            "rating": torch.tensor([r[2] for r in rows], dtype=torch.float32),
        }

    def train_dataloader(self):
        return DataLoader(self.train, self.bs, shuffle=True, collate_fn=self.collate, num_workers=4, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.bs, collate_fn=self.collate, num_workers=2)
