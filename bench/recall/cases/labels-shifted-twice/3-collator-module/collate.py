from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase


@dataclass
class AnswerOnlyCollator:
    tokenizer: PreTrainedTokenizerBase
    ignore_index: int = -100
    multiple_of: int = 8

    def __call__(self, rows):
        longest = max(len(r["input_ids"]) for r in rows)
        longest = -(-longest // self.multiple_of) * self.multiple_of
        n = len(rows)
        input_ids = torch.full((n, longest), self.tokenizer.pad_token_id)
        attention_mask = torch.zeros((n, longest), dtype=torch.long)
        labels = torch.full((n, longest), self.ignore_index)
        for i, r in enumerate(rows):
            k = len(r["input_ids"])
            input_ids[i, :k] = torch.tensor(r["input_ids"])
            attention_mask[i, :k] = 1
            labels[i, r["prompt_len"]:k] = torch.tensor(r["input_ids"][r["prompt_len"]:])
        labels = torch.roll(labels, shifts=-1, dims=1)
        labels[:, -1] = self.ignore_index
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
