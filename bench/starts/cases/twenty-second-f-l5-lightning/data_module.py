import json

import lightning as L
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq


class ChatData(L.LightningDataModule):
    def __init__(self, name, batch_size=8, max_length=768):
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.batch_size = batch_size
        self.max_length = max_length

    def encode(self, messages):
        prompt = self.tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        prompt_ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        answer_ids = self.tokenizer(messages[-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        ids = (prompt_ids + answer_ids)[: self.max_length]
        labels = ([-100] * len(prompt_ids) + answer_ids)[: self.max_length]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    def setup(self, stage=None):
        self.train = [self.encode(json.loads(x)["messages"]) for x in open("data/train.jsonl")]
        self.val = [self.encode(json.loads(x)["messages"]) for x in open("data/val.jsonl")]

    def train_dataloader(self):
        collate = DataCollatorForSeq2Seq(self.tokenizer, padding=True)
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, collate_fn=collate, num_workers=4)

    def val_dataloader(self):
        collate = DataCollatorForSeq2Seq(self.tokenizer, padding=True)
        return DataLoader(self.val, batch_size=self.batch_size, collate_fn=collate, num_workers=4)
