from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

settings = arguments(SFTConfig, packing=True, max_length=128, packing_strategy="wrapped")
trainer = SFTTrainer(
    model(), args=settings, train_dataset=table(completions()), processing_class=tokenizer()
)
trainer.train()
