import json

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset


def find_last(seq, sub):
    for i in range(len(seq) - len(sub), -1, -1):
        if seq[i : i + len(sub)] == sub:
            return i + len(sub)
    return len(seq)


class Dialogues(Dataset):
    def __init__(self, path, tokenizer, limit=4096):
        opener = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
        self.items = []
        with open(path, encoding="utf-8") as fh:
            for line in fh:
                text = tokenizer.apply_chat_template(json.loads(line)["messages"], tokenize=False)
                ids = tokenizer(text, add_special_tokens=False)["input_ids"][:limit]
                start = find_last(ids, opener)
                labels = torch.full((len(ids),), -100)
                labels[start:] = torch.tensor(ids[start:], dtype=torch.long)
                self.items.append((torch.tensor(ids), labels))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(pad_id):
    def run(items):
        ids, labels = zip(*items)
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_id),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
            "attention_mask": pad_sequence([torch.ones_like(x) for x in ids], batch_first=True),
        }

    return run
