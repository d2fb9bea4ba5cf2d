from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

rows = completions()
trainer = SFTTrainer(
    model(), args=arguments(SFTConfig), train_dataset=table(rows), processing_class=tokenizer()
)
trainer.train()
