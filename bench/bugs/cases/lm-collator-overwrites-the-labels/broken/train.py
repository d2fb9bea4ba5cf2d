from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
collator = DataCollatorForLanguageModeling(tok, mlm=False)
rows = encoded(chats())
for row in rows:
    row["attention_mask"] = [1] * len(row["input_ids"])
longest = max(len(row["input_ids"]) for row in rows)
for row in rows:
    gap = longest - len(row["input_ids"])
    row["input_ids"] += [tok.pad_token_id] * gap
    row["attention_mask"] += [0] * gap
    row["labels"] += [-100] * gap
trainer = Trainer(
    model(), arguments(), data_collator=collator, train_dataset=table(rows), processing_class=tok
)
trainer.train()
