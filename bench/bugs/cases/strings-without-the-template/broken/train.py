from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

rows = completions()
rows = [{side: row[side][0]["content"] for side in ("prompt", "completion")} for row in rows]
trainer = SFTTrainer(
    model(), args=arguments(SFTConfig), train_dataset=table(rows), processing_class=tokenizer()
)
trainer.train()
