from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

rows = completions()
for row in rows[::4]:
    row["prompt"][0]["content"] += " Count them with care, please." * 4
settings = arguments(SFTConfig, max_length=96)
trainer = SFTTrainer(
    model(), args=settings, train_dataset=table(rows), processing_class=tokenizer()
)
trainer.train()
