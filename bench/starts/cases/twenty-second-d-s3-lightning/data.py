import json
from dataclasses import dataclass

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


@dataclass
class DataConfig:
    path: str = "intents.jsonl"
    block: int = 4096
    batch_size: int = 8
    workers: int = 8


class Chats(Dataset):
    def __init__(self, rows, tokenizer, cfg: DataConfig):
        self.items = [self.encode(r["messages"], tokenizer, cfg) for r in rows]

    @staticmethod
    def encode(messages, tokenizer, cfg):
        full = tokenizer.apply_chat_template(messages, tokenize=False)
        prompt = tokenizer.apply_chat_template(
            messages[:-1], tokenize=False, add_generation_prompt=True
        )
        enc = tokenizer(
            full,
            truncation=True,
            padding="max_length",
            max_length=cfg.block,
            return_tensors="pt",
        )
        ids, mask = enc["input_ids"][0], enc["attention_mask"][0]
        labels = ids.clone()
        labels[mask == 0] = -100
        labels[: len(tokenizer(prompt)["input_ids"])] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class ChatData(L.LightningDataModule):
    def __init__(self, model_name, cfg: DataConfig):
        super().__init__()
        self.cfg = cfg
        self.tokenizer = AutoTokenizer.from_pretrained(model_name, padding_side="right")

    def setup(self, stage=None):
        with open(self.cfg.path) as f:
            rows = [json.loads(line) for line in f]
        self.train = Chats(rows[200:], self.tokenizer, self.cfg)
        self.val = Chats(rows[:200], self.tokenizer, self.cfg)

    def train_dataloader(self):
        return DataLoader(
            self.train,
            batch_size=self.cfg.batch_size,
            shuffle=True,
            num_workers=self.cfg.workers,
            pin_memory=True,
            persistent_workers=True,
        )

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.cfg.batch_size, num_workers=2)
