import torch.distributed as dist
from datasets import load_dataset


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["answer"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def my_rows(path, tok, seed=42):
    world, rank = dist.get_world_size(), dist.get_rank()
    ds = load_dataset("json", data_files=path, split="train").shuffle(seed=seed)
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 1024)
    ds = ds.select(range(len(ds) // world * world))
    return ds.shard(num_shards=world, index=rank)
