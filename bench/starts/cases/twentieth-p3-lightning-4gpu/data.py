import json

import lightning as L
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class SupportStream(IterableDataset):
    """Rows of a JSONL file, tokenized on the fly: the export is too big to hold in memory."""

    def __init__(self, path, tokenizer, max_len=2048):
        self.path, self.tokenizer, self.max_len = path, tokenizer, max_len

    def encode(self, row):
        messages = row["messages"]
        prompt = self.tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False)
        ids = self.tokenizer.apply_chat_template(messages, return_dict=False)
        if len(ids) > self.max_len:
            return None
        return {"input_ids": ids, "labels": [-100] * len(prompt) + ids[len(prompt):]}

    def __iter__(self):
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        with open(self.path, encoding="utf-8") as lines:
            for i, line in enumerate(lines):
                if i % count != index:
                    continue
                row = self.encode(json.loads(line))
                if row is not None:
                    yield row


class SupportData(L.LightningDataModule):
    def __init__(self, train, val, tokenizer, batch_size=4, workers=4):
        super().__init__()
        self.train, self.val = train, val
        self.tokenizer, self.batch_size, self.workers = tokenizer, batch_size, workers

    def collate(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), width), self.tokenizer.pad_token_id)
        labels = torch.full((len(rows), width), -100)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for k, r in enumerate(rows):
            n = len(r["input_ids"])
            ids[k, :n], labels[k, :n], mask[k, :n] = torch.tensor(r["input_ids"]), torch.tensor(r["labels"]), 1
        return {"input_ids": ids, "labels": labels, "attention_mask": mask}

    def train_dataloader(self):
        return DataLoader(SupportStream(self.train, self.tokenizer), batch_size=self.batch_size,
                          num_workers=self.workers, collate_fn=self.collate, pin_memory=True)

    def val_dataloader(self):
        return DataLoader(SupportStream(self.val, self.tokenizer), batch_size=self.batch_size,
                          num_workers=1, collate_fn=self.collate)
