import torch
from transformers import Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()


def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    gaps = [longest - len(row["input_ids"]) for row in rows]
    return {
        "input_ids": torch.tensor(
            [row["input_ids"] + [tok.pad_token_id] * gap for row, gap in zip(rows, gaps)]
        ),
        "attention_mask": torch.tensor([[1] * (longest - gap) + [0] * gap for gap in gaps]),
        "labels": torch.tensor(
            [row["labels"] + [tok.pad_token_id] * gap for row, gap in zip(rows, gaps)]
        ),
    }


trainer = Trainer(
    model(),
    arguments(),
    data_collator=collate,
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
