from itertools import chain


class Blocks:
    """Cuts a corpus into blocks of one length."""

    def __init__(self, tok, length):
        self.tok, self.length = tok, length

    def tokenize(self, batch):
        ids = self.tok([t + self.tok.eos_token for t in batch["text"]], add_special_tokens=False)["input_ids"]
        return {"ids": ids}

    def cut(self, batch):
        flow = list(chain.from_iterable(batch["ids"]))
        out = {"input_ids": [], "attention_mask": [], "labels": []}
        for start in range(0, len(flow) - self.length, self.length):
            piece = flow[start : start + self.length + 1]
            out["input_ids"].append(piece[:-1])
            out["attention_mask"].append([1] * self.length)
            out["labels"].append(piece[1:])
        return out

    def __call__(self, ds):
        ds = ds.map(self.tokenize, batched=True, remove_columns=ds.column_names)
        return ds.map(self.cut, batched=True, batch_size=1000, remove_columns=["ids"])
