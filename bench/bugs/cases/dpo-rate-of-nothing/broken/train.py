from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

trainer = DPOTrainer(
    model(),
    model(),
    args=arguments(DPOConfig, learning_rate=1e-12),
    train_dataset=table(pairs()),
    processing_class=tokenizer(),
)
trainer.train()
