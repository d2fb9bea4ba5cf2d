import json

import lightning as L
import torch
from torch.utils.data import DataLoader


class TicketData(L.LightningDataModule):
    def __init__(self, path, tokenizer, max_tokens=1024, batch_size=1, seed=0):
        super().__init__()
        self.path = path
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.seed = seed

    def _row(self, row):
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": row["ticket"]}], tokenize=False, add_generation_prompt=True
        )
        prompt_ids = self.tokenizer(prompt, add_special_tokens=False).input_ids
        answer_ids = self.tokenizer(row["reply"] + "<|im_end|>", add_special_tokens=False).input_ids
        ids = (prompt_ids + answer_ids)[: self.max_tokens]
        mask = ([0] * len(prompt_ids) + [1] * len(answer_ids))[: self.max_tokens]
        return torch.tensor(ids), torch.tensor(mask)

    def setup(self, stage=None):
        with open(self.path, encoding="utf-8") as source:
            self.rows = [self._row(json.loads(line)) for line in source]

    def _collate(self, rows):
        pad = self.tokenizer.pad_token_id
        ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True, padding_value=pad)
        mask = torch.nn.utils.rnn.pad_sequence([r[1] for r in rows], batch_first=True, padding_value=0)
        lengths = torch.tensor([len(r[0]) for r in rows])
        attention = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
        return {"input_ids": ids, "attention_mask": attention, "loss_mask": mask}

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(self.seed)
        return DataLoader(self.rows, batch_size=self.batch_size, shuffle=True, generator=generator, collate_fn=self._collate)
