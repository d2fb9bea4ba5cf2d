import torch
from torch.nn.utils.rnn import pad_sequence


class PromptCollator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, features):
        ids = [torch.tensor(f["input_ids"], dtype=torch.long) for f in features]
        mask = [torch.ones_like(x) for x in ids]
        return {
            "row": torch.tensor([f["row"] for f in features]),
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_id),
            "attention_mask": pad_sequence(mask, batch_first=True, padding_value=0),
        }
