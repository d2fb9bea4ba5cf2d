from datasets import load_dataset


def mask_head(labels, n):
    return [-100] * n + labels[n:]


class ChatRows:
    """Turns {"messages": [...]} rows into model inputs."""

    def __init__(self, tok, limit=2048):
        self.tok = tok
        self.limit = limit

    def render(self, messages, **kw):
        text = self.tok.apply_chat_template(messages, tokenize=False, **kw)
        return self.tok(text, add_special_tokens=False)["input_ids"]

    def encode(self, row):
        ids = self.render(row["messages"])
        n = len(self.render(row["messages"][:-1], add_generation_prompt=True))
        labels = mask_head(ids.copy(), n)
        ids, labels = ids[: self.limit], labels[: self.limit]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    def load(self, path, seed=5):
        ds = load_dataset("json", data_files=path, split="train").train_test_split(0.1, seed=seed)
        return ds.map(self.encode, remove_columns=ds["train"].column_names)
