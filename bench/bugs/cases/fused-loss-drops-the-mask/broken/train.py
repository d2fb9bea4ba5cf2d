from transformers import Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer


class Fused:
    """Keeps what the kernel takes, and builds the labels from it."""

    def __init__(self, tokenizer, columns):
        self.tokenizer, self.columns = tokenizer, columns

    def __call__(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        kept = [{name: row[name] for name in self.columns} for row in rows]
        labels = [row.get("labels", row["input_ids"]) for row in kept]
        batch = self.tokenizer.pad(
            [{"input_ids": row["input_ids"]} for row in kept], return_tensors="pt"
        )
        batch["labels"] = batch["input_ids"].new_tensor(
            [row + [-100] * (longest - len(row)) for row in labels]
        )
        return batch


tok = tokenizer()
trainer = Trainer(
    model(),
    arguments(remove_unused_columns=False),
    data_collator=Fused(tok, ["input_ids"]),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
