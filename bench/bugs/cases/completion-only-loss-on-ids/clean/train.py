from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

rows = encoded(chats())
settings = arguments(SFTConfig, completion_only_loss=True)
trainer = SFTTrainer(
    model(), args=settings, train_dataset=table(rows), processing_class=tokenizer()
)
trainer.train()
