import torch
from datasets import load_dataset
from torch.utils.data import DataLoader


def encode(row, tokenizer, limit):
    messages = row["messages"]
    head = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"][:limit]
    n = min(len(tokenizer(head, add_special_tokens=False)["input_ids"]), len(ids))
    return {"input_ids": ids, "labels": [-100] * n + ids[n:]}


def one_pass(files, tokenizer, batch_size, limit=4096):
    rows = load_dataset("json", data_files=files, split="train", streaming=True)
    rows = rows.shuffle(seed=13, buffer_size=5000).take(500)
    rows = rows.map(encode, fn_kwargs={"tokenizer": tokenizer, "limit": limit}, remove_columns=["messages"])

    def collate(batch):
        width = max(len(b["input_ids"]) for b in batch)
        pad = lambda x, v: x + [v] * (width - len(x))
        return {
            "input_ids": torch.tensor([pad(b["input_ids"], tokenizer.pad_token_id) for b in batch]),
            "labels": torch.tensor([pad(b["labels"], -100) for b in batch]),
            "attention_mask": torch.tensor([pad([1] * len(b["input_ids"]), 0) for b in batch]),
        }

    return DataLoader(rows, batch_size=batch_size, collate_fn=collate)
