import json

import lightning as L
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer, default_data_collator


class SupportDataset(Dataset):
    def __init__(self, path, tokenizer, block):
        self.rows = [json.loads(line) for line in open(path)]
        self.tok = tokenizer
        self.block = block

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        messages = self.rows[i]["messages"]
        prompt = self.tok.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        full = prompt + messages[-1]["content"] + "<|im_end|>\n"
        enc = self.tok(
            full, truncation=True, padding="max_length", max_length=self.block,
            add_special_tokens=False, return_tensors="pt",
        )
        ids, mask = enc["input_ids"][0], enc["attention_mask"][0]
        n_prompt = len(self.tok(prompt, add_special_tokens=False)["input_ids"])
        labels = ids.clone()
        labels[:n_prompt] = -100
        labels[mask == 0] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class SupportData(L.LightningDataModule):
    def __init__(self, model_name, block=4096, batch_size=4):
        super().__init__()
        self.tok = AutoTokenizer.from_pretrained(model_name)
        self.block, self.batch_size = block, batch_size

    def setup(self, stage=None):
        self.train = SupportDataset("train.jsonl", self.tok, self.block)
        self.val = SupportDataset("val.jsonl", self.tok, self.block)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, num_workers=8,
                          pin_memory=True, persistent_workers=True, collate_fn=default_data_collator)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.batch_size, num_workers=4, collate_fn=default_data_collator)
