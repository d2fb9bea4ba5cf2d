import json

import torch
from torch.utils.data import Dataset


class Reports(Dataset):
    """document -> summary"""

    def __init__(self, path, tokenizer, max_length=256):
        self.rows = [json.loads(l) for l in open(path, encoding="utf-8")]
        self.tok, self.max_length = tokenizer, max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        prompt = self.tok.apply_chat_template(
            [{"role": "user", "content": "Summarise this report:\n\n" + r["report"]}],
            tokenize=False, add_generation_prompt=True,
        )
        p = self.tok(prompt, add_special_tokens=False)["input_ids"]
        a = self.tok(r["summary"] + "<|im_end|>", add_special_tokens=False)["input_ids"]
        ids = (p + a)[: self.max_length]
        labels = ([-100] * len(p) + a)[: self.max_length]
        return {"input_ids": ids, "labels": labels}


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, batch):
        n = max(len(b["input_ids"]) for b in batch)
        f = lambda k, v: torch.tensor([b[k] + [v] * (n - len(b[k])) for b in batch])
        mask = torch.tensor([[1] * len(b["input_ids"]) + [0] * (n - len(b["input_ids"])) for b in batch])
        return {"input_ids": f("input_ids", self.pad_id), "labels": f("labels", -100), "attention_mask": mask}
