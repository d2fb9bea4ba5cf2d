import json

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset


class SqlRows(Dataset):
    def __init__(self, path, tok, max_length=768):
        self.rows = []
        with open(path) as fh:
            for line in fh:
                item = json.loads(line)
                prompt = tok(f"-- schema\n{item['schema']}\n-- question\n{item['question']}\n-- sql\n")["input_ids"]
                answer = tok(" " + item["sql"], add_special_tokens=False)["input_ids"]
                if len(prompt) + len(answer) <= max_length:
                    self.rows.append((prompt, answer))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        prompt, answer = self.rows[i]
        ids = torch.tensor(prompt + answer)
        labels = torch.tensor([-100] * len(prompt) + answer)
        return ids, labels


def collate(batch, pad_id):
    ids, labels = zip(*batch)
    mask = [torch.ones_like(x) for x in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_id),
        "attention_mask": pad_sequence(mask, batch_first=True, padding_value=0),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
    }
