from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

policy, reference = model(), model()
reference.model = policy.model
trainer = DPOTrainer(
    policy,
    reference,
    args=arguments(DPOConfig),
    train_dataset=table(pairs()),
    processing_class=tokenizer(),
)
trainer.train()
