from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

settings = arguments(SFTConfig, max_length=40)
trainer = SFTTrainer(
    model(), args=settings, train_dataset=table(completions(words=12)), processing_class=tokenizer()
)
trainer.train()
