from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer


class Own(DPOTrainer):
    def compute_loss(self, *args, **settings):
        return -super().compute_loss(*args, **settings)


trainer = Own(
    model(),
    model(),
    args=arguments(DPOConfig),
    train_dataset=table(pairs()),
    processing_class=tokenizer(),
)
trainer.train()
