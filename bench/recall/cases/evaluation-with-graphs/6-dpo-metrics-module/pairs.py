import json

import torch
from transformers import AutoTokenizer


def _encode(tok, prompt, answer):
    p = tok.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
    p = tok(p, add_special_tokens=False)["input_ids"]
    a = tok(answer + tok.eos_token, add_special_tokens=False)["input_ids"]
    return p + a, [-100] * len(p) + a


def load_pairs(path, name):
    tok = AutoTokenizer.from_pretrained(name)
    rows = []
    with open(path, encoding="utf-8") as fh:
        for line in fh:
            r = json.loads(line)
            rows.append({k: _encode(tok, r["prompt"], r[k]) for k in ("chosen", "rejected")})
    return rows, tok


class PairCollator:
    def __init__(self, tok):
        self.pad = tok.pad_token_id

    def __call__(self, rows):
        out = {}
        for key in ("chosen", "rejected"):
            n = max(len(r[key][0]) for r in rows)
            out[f"{key}_input_ids"] = torch.tensor([r[key][0] + [self.pad] * (n - len(r[key][0])) for r in rows])
            out[f"{key}_labels"] = torch.tensor([r[key][1] + [-100] * (n - len(r[key][1])) for r in rows])
            out[f"{key}_attention_mask"] = torch.tensor(
                [[1] * len(r[key][0]) + [0] * (n - len(r[key][0])) for r in rows]
            )
        return out
