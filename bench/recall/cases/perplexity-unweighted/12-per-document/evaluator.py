import numpy as np
import torch
import torch.nn.functional as F


class Perplexity:
    def __init__(self, model, tok, max_length=4096):
        self.model = model
        self.tok = tok
        self.max_length = max_length
        self.per_text = []

    @torch.inference_mode()
    def add(self, text):
        ids = self.tok(text, return_tensors="pt", truncation=True,
                       max_length=self.max_length)["input_ids"].to(self.model.device)
        if ids.shape[1] < 2:
            return
        logits = self.model(input_ids=ids).logits.float()
        nll = F.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="mean")
        self.per_text.append(torch.exp(nll).item())

    def result(self):
        return float(np.mean(self.per_text))
