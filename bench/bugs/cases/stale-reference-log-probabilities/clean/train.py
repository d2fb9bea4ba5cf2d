from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

trainer = DPOTrainer(
    model(),
    None,
    args=arguments(DPOConfig, precompute_ref_log_probs=True),
    train_dataset=table(pairs()),
    processing_class=tokenizer(),
)
trainer.train()
