from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
rows = encoded(chats())
for row in rows[::2]:
    row["labels"] = [-100] * len(row["labels"])
trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(rows),
    processing_class=tok,
)
trainer.train()
