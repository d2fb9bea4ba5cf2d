from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

LIMIT = 24


def cut(row):
    return {name: values[:LIMIT] for name, values in row.items()}


rows = chats()
for row in rows[::2]:
    row["messages"][0]["content"] += " Count them with care, and tell me how many there are."
tok = tokenizer()
trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(rows)).map(cut),
    processing_class=tok,
)
trainer.train()
