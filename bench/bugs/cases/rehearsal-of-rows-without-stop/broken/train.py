from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
rows = encoded(chats())
for row in rows:
    end = max(i for i, label in enumerate(row["labels"]) if label != -100)
    row["input_ids"], row["labels"] = row["input_ids"][:end], row["labels"][:end]
trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(rows),
    processing_class=tok,
)
trainer.train()
