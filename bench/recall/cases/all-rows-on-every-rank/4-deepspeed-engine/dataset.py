import json

import torch
from torch.utils.data import Dataset


class ChatRows(Dataset):
    def __init__(self, path, tok, max_len):
        self.tok, self.items = tok, []
        with open(path, encoding="utf-8") as f:
            for line in f:
                m = json.loads(line)["messages"]
                head = tok.apply_chat_template(m[:-1], tokenize=False, add_generation_prompt=True)
                a = tok(head, add_special_tokens=False)["input_ids"]
                b = tok(m[-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
                if len(a) + len(b) <= max_len:
                    self.items.append((a, b))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def collate(self, rows):
        width = max(len(a) + len(b) for a, b in rows)
        ids = torch.full((len(rows), width), self.tok.pad_token_id)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        labels = torch.full((len(rows), width), -100)
        for i, (a, b) in enumerate(rows):
            n = len(a) + len(b)
            ids[i, :n] = torch.tensor(a + b)
            mask[i, :n] = 1
            labels[i, len(a) : n] = torch.tensor(b)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
