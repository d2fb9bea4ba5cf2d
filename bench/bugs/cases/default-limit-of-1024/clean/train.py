from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

settings = arguments(SFTConfig, max_length=2048)
trainer = SFTTrainer(
    model(max_position_embeddings=2048),
    args=settings,
    train_dataset=table(completions(4, words=300)),
    processing_class=tokenizer(),
)
trainer.train()
