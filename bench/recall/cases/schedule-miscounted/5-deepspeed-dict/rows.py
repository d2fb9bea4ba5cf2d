import json

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class ChatRows(Dataset):
    """One dialogue a row; only the last assistant turn is learned."""

    def __init__(self, path, tokenizer, max_length=2048):
        self.items = []
        with open(path, encoding="utf-8") as fh:
            for line in fh:
                turns = json.loads(line)["messages"]
                head = tokenizer.apply_chat_template(turns[:-1], tokenize=False, add_generation_prompt=True)
                whole = tokenizer.apply_chat_template(turns, tokenize=False)
                ids = tokenizer(whole, add_special_tokens=False).input_ids[:max_length]
                cut = len(tokenizer(head, add_special_tokens=False).input_ids)
                if cut < len(ids):
                    self.items.append((ids, [-100] * cut + ids[cut:]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class PadRight:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, batch):
        ids = [torch.tensor(x) for x, _ in batch]
        labels = [torch.tensor(y) for _, y in batch]
        mask = [torch.ones_like(x) for x in ids]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_id),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
            "attention_mask": pad_sequence(mask, batch_first=True, padding_value=0),
        }
