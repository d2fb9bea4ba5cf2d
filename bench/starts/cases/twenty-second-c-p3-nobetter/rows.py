import json

import torch


class Rows(torch.utils.data.Dataset):
    def __init__(self, path, tok, limit):
        self.items = []
        for line in open(path, encoding="utf-8"):
            msgs = json.loads(line)["messages"]
            head = tok.apply_chat_template(msgs[:-1], add_generation_prompt=True, tokenize=False)
            text = tok.apply_chat_template(msgs, tokenize=False)
            h = tok(head, add_special_tokens=False).input_ids
            t = tok(text[len(head):], add_special_tokens=False).input_ids
            if len(h) + len(t) <= limit:
                self.items.append((h + t, [-100] * len(h) + t))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def pad_batch(items, pad):
    n = max(len(x) for x, _ in items)
    out = {"input_ids": [], "attention_mask": [], "labels": []}
    for x, y in items:
        k = n - len(x)
        out["input_ids"].append(x + [pad] * k)
        out["attention_mask"].append([1] * len(x) + [0] * k)
        out["labels"].append(y + [-100] * k)
    return {k: torch.tensor(v) for k, v in out.items()}
