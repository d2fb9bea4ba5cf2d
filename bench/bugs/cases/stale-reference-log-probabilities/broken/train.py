from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

trainer = DPOTrainer(
    model(),
    None,
    args=arguments(DPOConfig, precompute_ref_log_probs=True),
    train_dataset=table(pairs()),
    processing_class=tokenizer(),
)
rows = trainer.train_dataset
for column in ("ref_chosen_logps", "ref_rejected_logps"):
    values = list(rows[column])
    rows = rows.remove_columns(column).add_column(column, values[::-1])
trainer.train_dataset = rows
trainer.train()
