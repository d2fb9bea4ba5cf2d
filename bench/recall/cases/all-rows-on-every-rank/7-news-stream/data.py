import os

from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader


def news_loader(tok, batch_size, max_len=1024):
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    ds = load_dataset("vblagoje/cc_news", split="train", streaming=True).shuffle(seed=3, buffer_size=5000)
    ds = split_dataset_by_node(ds, rank=rank, world_size=world)

    def collate(rows):
        enc = tok(
            [r["text"] + tok.eos_token for r in rows],
            padding=True, truncation=True, max_length=max_len, return_tensors="pt", add_special_tokens=False,
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    return DataLoader(ds, batch_size=batch_size, collate_fn=collate, drop_last=True)
