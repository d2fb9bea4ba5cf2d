import torch
from datasets import load_dataset
from torch.utils.data import DataLoader


def encode(row, tokenizer, max_length):
    messages = row["messages"]
    full = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    input_ids = tokenizer(full, add_special_tokens=False)["input_ids"][:max_length]
    n_prompt = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    labels = [-100] * min(n_prompt, len(input_ids)) + input_ids[n_prompt:]
    return {"input_ids": input_ids, "labels": labels}


def make_collate(pad_id):
    def collate(batch):
        width = max(len(b["input_ids"]) for b in batch)
        ids, labels, mask = [], [], []
        for b in batch:
            gap = width - len(b["input_ids"])
            ids.append(b["input_ids"] + [pad_id] * gap)
            labels.append(b["labels"] + [-100] * gap)
            mask.append([1] * len(b["input_ids"]) + [0] * gap)
        return {
            "input_ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            "attention_mask": torch.tensor(mask),
        }

    return collate


def build_loader(path, tokenizer, batch_size, max_length=2048, shuffle=True):
    rows = load_dataset("json", data_files=path, split="train")
    rows = rows.map(lambda r: encode(r, tokenizer, max_length), remove_columns=rows.column_names)
    rows = rows.filter(lambda r: any(x != -100 for x in r["labels"]))
    return DataLoader(rows, batch_size=batch_size, shuffle=shuffle, collate_fn=make_collate(tokenizer.pad_token_id))
