import json

import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer


class ChatData(L.LightningDataModule):
    def __init__(self, name, train, val, batch_size=4, max_len=512):
        super().__init__()
        self.tok = AutoTokenizer.from_pretrained(name)
        self.train, self.val = train, val
        self.batch_size, self.max_len = batch_size, max_len

    def encode(self, path):
        items = []
        for line in open(path):
            m = json.loads(line)["messages"]
            full = self.tok.apply_chat_template(m, tokenize=False)
            head = self.tok.apply_chat_template(m[:-1], tokenize=False, add_generation_prompt=True)
            ids = self.tok(full, add_special_tokens=False)["input_ids"][: self.max_len]
            n = len(self.tok(head, add_special_tokens=False)["input_ids"])
            labels = ([-100] * n + ids[n:])[: self.max_len]
            pad = self.max_len - len(ids)
            items.append({
                "input_ids": torch.tensor(ids + [self.tok.pad_token_id] * pad),
                "attention_mask": torch.tensor([1] * len(ids) + [0] * pad),
                "labels": torch.tensor(labels + [-100] * pad),
            })
        return items

    def setup(self, stage=None):
        self.train_items, self.val_items = self.encode(self.train), self.encode(self.val)

    def train_dataloader(self):
        return DataLoader(self.train_items, self.batch_size, shuffle=True, drop_last=True, num_workers=4)

    def val_dataloader(self):
        return DataLoader(self.val_items, self.batch_size, num_workers=2)
