from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

reference = model(attention_dropout=0.3, initializer_range=0.3)
reference.train()
trainer = DPOTrainer(
    model(attention_dropout=0.3, initializer_range=0.3),
    reference,
    args=arguments(DPOConfig, disable_dropout=False),
    train_dataset=table(pairs()),
    processing_class=tokenizer(),
)
trainer.ref_model.train()
trainer.train()
