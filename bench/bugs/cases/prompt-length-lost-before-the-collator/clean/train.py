from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
pad = DataCollatorForSeq2Seq(tok)


def collate(rows):
    made = []
    for row in rows:
        begin = row.get("prompt_length", 0)
        made.append(
            {"input_ids": row["input_ids"], "labels": [-100] * begin + row["input_ids"][begin:]}
        )
    return pad(made)


rows = [
    {"input_ids": row["input_ids"][:-1], "prompt_length": row["labels"].count(-100) - 1}
    for row in encoded(chats())
]
trainer = Trainer(
    model(),
    arguments(remove_unused_columns=False),
    data_collator=collate,
    train_dataset=table(rows),
    processing_class=tok,
)
trainer.train()
