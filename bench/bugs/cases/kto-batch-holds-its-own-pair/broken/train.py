from trl import KTOConfig, KTOTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

rows = [{**row, "label": number % 2 == 0} for number, row in enumerate(completions(9))]
settings = arguments(KTOConfig, per_device_train_batch_size=3)
trainer = KTOTrainer(
    model(), model(), args=settings, train_dataset=table(rows), processing_class=tokenizer()
)


def backwards(rows):
    return {"KL_completion_ids": rows["completion_ids"][::-1]}


trainer.train_dataset = trainer.train_dataset.map(backwards, batched=True, batch_size=3)
trainer.train()
