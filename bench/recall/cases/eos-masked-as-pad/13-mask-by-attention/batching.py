def head_of(row):
    return f"Question: {row['question']}\nAnswer:"


def text_of(row, tok):
    return f"{head_of(row)} {row['answer']}{tok.eos_token}"


class TextCollator:
    def __init__(self, tok, max_length=1024):
        self.tok = tok
        self.max_length = max_length

    def __call__(self, rows):
        enc = self.tok([text_of(r, self.tok) for r in rows], padding=True, truncation=True,
                       max_length=self.max_length, return_tensors="pt")
        labels = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        for i, row in enumerate(rows):
            labels[i, : len(self.tok(head_of(row))["input_ids"])] = -100
        enc["labels"] = labels
        return enc
