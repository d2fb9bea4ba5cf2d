import json

import lightning as L
from torch.utils.data import DataLoader, Dataset


class LetterDataset(Dataset):
    def __init__(self, path, tokenizer, length):
        with open(path, encoding="utf-8") as fh:
            self.rows = [json.loads(line) for line in fh]
        self.tok = tokenizer
        self.length = length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        chat = [
            {"role": "system", "content": "You write formal letters."},
            {"role": "user", "content": row["brief"]},
            {"role": "assistant", "content": row["letter"]},
        ]
        enc = self.tok(
            self.tok.apply_chat_template(chat, tokenize=False),
            max_length=self.length,
            padding="max_length",
            truncation=True,
            add_special_tokens=False,
            return_tensors="pt",
        )
        ids = enc["input_ids"].squeeze(0)
        return {"input_ids": ids, "attention_mask": enc["attention_mask"].squeeze(0), "labels": ids.clone()}


class LetterData(L.LightningDataModule):
    def __init__(self, tokenizer, train, val, length=1024, batch_size=4):
        super().__init__()
        self.train_set = LetterDataset(train, tokenizer, length)
        self.val_set = LetterDataset(val, tokenizer, length)
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, num_workers=4)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size, num_workers=4)
