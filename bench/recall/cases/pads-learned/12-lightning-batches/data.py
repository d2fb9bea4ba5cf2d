import json
from pathlib import Path

import lightning as L
from torch.utils.data import DataLoader, Dataset


class Chats(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(x) for x in Path(path).read_text().splitlines() if x.strip()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]["messages"]


class ChatData(L.LightningDataModule):
    def __init__(self, tokenizer, folder, batch_size=8, max_length=1024):
        super().__init__()
        self.tok = tokenizer
        self.folder = Path(folder)
        self.batch_size = batch_size
        self.max_length = max_length

    def collate(self, chats):
        texts = [self.tok.apply_chat_template(c, tokenize=False) for c in chats]
        batch = self.tok(
            texts,
            add_special_tokens=False,
            padding="longest",
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return {**batch, "labels": batch["input_ids"].clone()}

    def _loader(self, name, shuffle):
        return DataLoader(
            Chats(self.folder / name),
            batch_size=self.batch_size,
            shuffle=shuffle,
            num_workers=2,
            collate_fn=self.collate,
        )

    def train_dataloader(self):
        return self._loader("train.jsonl", True)

    def val_dataloader(self):
        return self._loader("valid.jsonl", False)
