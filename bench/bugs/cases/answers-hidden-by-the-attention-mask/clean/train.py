from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
rows = encoded(chats())
for row in rows:
    row["attention_mask"] = [1 for label in row["labels"]]
trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(rows),
    processing_class=tok,
)
trainer.train()
