from datasets import load_dataset


class ChatRows:
    """Turns {"messages": [...]} rows into model inputs."""

    def __init__(self, tok, limit=2048):
        self.tok = tok
        self.limit = limit

    def encode(self, row):
        text = self.tok.apply_chat_template(row["messages"], tokenize=False)
        enc = self.tok(text, add_special_tokens=False, truncation=True, max_length=self.limit)
        enc["labels"] = enc["input_ids"].copy()
        return enc

    def load(self, path, seed=5):
        ds = load_dataset("json", data_files=path, split="train").train_test_split(0.1, seed=seed)
        return ds.map(self.encode, remove_columns=ds["train"].column_names)
