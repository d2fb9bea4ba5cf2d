import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Prompts(Dataset):
    def __init__(self, rows, tok):
        self.rows, self.tok = rows, tok

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text = self.tok.apply_chat_template(
            [{"role": "user", "content": self.rows[i]["brief"]}], tokenize=False, add_generation_prompt=True
        )
        return torch.tensor(self.tok(text, add_special_tokens=False)["input_ids"])


def prompt_loader(rows, tok, batch_size):
    def collate(items):
        ids = pad_sequence(items, batch_first=True, padding_value=tok.pad_token_id)
        mask = pad_sequence([torch.ones_like(x) for x in items], batch_first=True, padding_value=0)
        return {"input_ids": ids, "attention_mask": mask}

    return DataLoader(Prompts(rows, tok), batch_size=batch_size, collate_fn=collate)
