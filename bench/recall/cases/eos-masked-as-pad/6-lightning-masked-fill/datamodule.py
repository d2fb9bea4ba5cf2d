import lightning as L
import torch
from datasets import load_dataset
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoTokenizer


class StoryData(L.LightningDataModule):
    def __init__(self, name, path, batch_size=8, max_length=1024):
        super().__init__()
        self.tok = AutoTokenizer.from_pretrained(name)
        self.tok.pad_token = self.tok.eos_token
        self.pad_id = self.tok.pad_token_id
        self.path, self.batch_size, self.max_length = path, batch_size, max_length

    def setup(self, stage=None):
        def encode(row):
            ids = self.tok(row["title"] + "\n\n" + row["story"])["input_ids"][: self.max_length - 1]
            return {"ids": ids + [self.tok.eos_token_id]}

        ds = load_dataset("json", data_files=self.path, split="train").train_test_split(test_size=0.05, seed=0)
        self.ds = ds.map(encode, remove_columns=ds["train"].column_names)

    def collate(self, rows):
        seqs = [torch.tensor(r["ids"]) for r in rows]
        ids = pad_sequence(seqs, batch_first=True, padding_value=self.pad_id)
        mask = pad_sequence([torch.ones_like(s) for s in seqs], batch_first=True, padding_value=0)
        labels = ids.masked_fill(ids.eq(self.pad_id), -100)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def train_dataloader(self):
        return DataLoader(self.ds["train"], self.batch_size, shuffle=True, collate_fn=self.collate, num_workers=2)

    def val_dataloader(self):
        return DataLoader(self.ds["test"], self.batch_size, collate_fn=self.collate, num_workers=2)
