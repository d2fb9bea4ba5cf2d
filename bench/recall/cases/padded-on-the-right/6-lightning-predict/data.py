import json

import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer


def read(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class ReviewData(L.LightningDataModule):
    def __init__(self, name, folder="data", batch_size=8, max_len=768):
        super().__init__()
        self.tok = AutoTokenizer.from_pretrained(name, padding_side="right")
        self.folder, self.batch_size, self.max_len = folder, batch_size, max_len

    def chat(self, row, with_answer):
        msgs = [{"role": "user", "content": f"Write a reply to this review:\n{row['review']}"}]
        if with_answer:
            msgs.append({"role": "assistant", "content": row["reply"]})
        return self.tok.apply_chat_template(msgs, tokenize=False, add_generation_prompt=not with_answer)

    def _pad(self, texts):
        return self.tok(texts, padding=True, add_special_tokens=False, return_tensors="pt")

    def collate_train(self, rows):
        batch = self._pad([self.chat(r, True) for r in rows])
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        for i, r in enumerate(rows):
            n = len(self.tok(self.chat(r, False), add_special_tokens=False)["input_ids"])
            labels[i, :n] = -100
        return {**batch, "labels": labels}

    def collate_predict(self, rows):
        return self._pad([self.chat(r, False) for r in rows])

    def train_dataloader(self):
        return DataLoader(read(f"{self.folder}/train.jsonl"), self.batch_size, shuffle=True, collate_fn=self.collate_train)

    def val_dataloader(self):
        return DataLoader(read(f"{self.folder}/val.jsonl"), self.batch_size, collate_fn=self.collate_train)

    def predict_dataloader(self):
        return DataLoader(read(f"{self.folder}/test.jsonl"), self.batch_size, collate_fn=self.collate_predict)
