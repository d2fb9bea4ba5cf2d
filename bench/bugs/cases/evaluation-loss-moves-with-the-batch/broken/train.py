from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
rows = chats(16)
for row in rows[8::2]:
    row["messages"][1]["content"] += " and they were counted" * 8
trainer = Trainer(
    model(),
    arguments(eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=4),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(rows[:8])),
    eval_dataset=table(encoded(rows[8:])),
    processing_class=tok,
)
trainer.train()
