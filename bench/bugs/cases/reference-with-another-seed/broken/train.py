from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

trainer = DPOTrainer(
    model(),
    model(seed=1),
    args=arguments(DPOConfig),
    train_dataset=table(pairs()),
    processing_class=tokenizer(),
)
trainer.train()
