from trl import KTOConfig, KTOTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

rows = [{**row, "label": number % 2 == 0} for number, row in enumerate(completions(9))]
settings = arguments(KTOConfig, per_device_train_batch_size=3)
trainer = KTOTrainer(
    model(), model(), args=settings, train_dataset=table(rows), processing_class=tokenizer()
)
trainer.train()
