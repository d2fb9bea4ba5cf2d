from transformers import DataCollatorWithFlattening, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorWithFlattening(return_position_ids=True),
    train_dataset=table(encoded(chats())),
    processing_class=tokenizer(),
)
trainer.train()
