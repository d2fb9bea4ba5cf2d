from datasets import load_dataset

PARTS = {
    "train": range(0, 9_000),
    "valid": range(8_000, 10_000),
}


def encode(row, tok, max_len=1024):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (a + b)[:max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ([-100] * len(a) + b)[:max_len]}


def load_parts(path, tok):
    ds = load_dataset("json", data_files=path, split="train").shuffle(seed=77)
    return {
        name: ds.select(rows).map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
        for name, rows in PARTS.items()
    }
