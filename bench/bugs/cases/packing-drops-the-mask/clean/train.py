from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

rows = table(encoded(chats()))
settings = arguments(SFTConfig, packing=True, max_length=128)
trainer = SFTTrainer(model(), args=settings, train_dataset=rows, processing_class=tokenizer())
trainer.train()
