class AnswerCollator:
    """Labels only what stands after the mark."""

    def __init__(self, tok, mark, max_length):
        self.tok = tok
        self.mark = mark
        self.max_length = max_length

    def start_of_answer(self, text):
        at = text.find(self.mark)
        return len(text) if at < 0 else at + len(self.mark)

    def __call__(self, rows):
        texts = [r["text"] for r in rows]
        enc = self.tok(texts, padding=True, truncation=True, max_length=self.max_length,
                       return_offsets_mapping=True, return_tensors="pt")
        offsets = enc.pop("offset_mapping")
        labels = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        for i, text in enumerate(texts):
            labels[i, offsets[i, :, 0] < self.start_of_answer(text)] = -100
        enc["labels"] = labels
        return enc
