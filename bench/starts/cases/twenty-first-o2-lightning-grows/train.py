import json

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer

from module import SFTModule

NAME = "Qwen/Qwen2.5-0.5B-Instruct"
MAX_LEN = 768
tok = AutoTokenizer.from_pretrained(NAME)


class Chats(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(x)["messages"] for x in open(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        m = self.rows[i]
        p = tok(tok.apply_chat_template(m[:-1], add_generation_prompt=True, tokenize=False), add_special_tokens=False).input_ids
        t = tok(tok.apply_chat_template(m, tokenize=False), add_special_tokens=False).input_ids[:MAX_LEN]
        return t, ([-100] * len(p) + t[len(p):])[:MAX_LEN]


def collate(b):
    n = max(len(t) for t, _ in b)
    return {
        "input_ids": torch.tensor([t + [tok.pad_token_id] * (n - len(t)) for t, _ in b]),
        "attention_mask": torch.tensor([[1] * len(t) + [0] * (n - len(t)) for t, _ in b]),
        "labels": torch.tensor([y + [-100] * (n - len(y)) for _, y in b]),
    }


if __name__ == "__main__":
    L.seed_everything(7)
    train = DataLoader(Chats("data/train.jsonl"), batch_size=4, shuffle=True, num_workers=4, collate_fn=collate)
    val = DataLoader(Chats("data/val.jsonl"), batch_size=4, num_workers=4, collate_fn=collate)
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=CSVLogger("logs"),
    )
    trainer.fit(SFTModule(), train, val)
