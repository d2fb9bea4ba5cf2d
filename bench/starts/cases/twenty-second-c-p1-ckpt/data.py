import json

import torch
from torch.utils.data import Dataset


class ChatDataset(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = []
        with open(path) as f:
            for line in f:
                m = json.loads(line)["messages"]
                full = tok.apply_chat_template(m, tokenize=True, return_dict=False)
                prompt = tok.apply_chat_template(m[:-1], tokenize=True, add_generation_prompt=True, return_dict=False)
                assert full[: len(prompt)] == prompt
                if len(full) > max_len:
                    continue
                self.rows.append((full, [-100] * len(prompt) + full[len(prompt):]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows, pad_id):
    n = max(len(ids) for ids, _ in rows)
    return {
        "input_ids": torch.tensor([ids + [pad_id] * (n - len(ids)) for ids, _ in rows]),
        "labels": torch.tensor([lab + [-100] * (n - len(lab)) for _, lab in rows]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (n - len(ids)) for ids, _ in rows]),
    }
