import json

from torch.utils.data import Dataset


class QADataset(Dataset):
    """Question and answer pairs; the loss is on the answer only."""

    def __init__(self, path, tok, max_len=768):
        self.items = []
        for line in open(path):
            r = json.loads(line)
            head = tok(f"Question: {r['q']}\nAnswer:", add_special_tokens=False)["input_ids"]
            tail = tok(f" {r['a']}", add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
            if len(head) + len(tail) <= max_len:
                self.items.append({"input_ids": head + tail, "labels": [-100] * len(head) + tail})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]
