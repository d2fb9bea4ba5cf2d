from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer


class KernelTrainer(SFTTrainer):
    def _prepare_dataset(self, *given, **settings):
        prepared = super()._prepare_dataset(*given, **settings)
        return prepared.select_columns(["input_ids", "labels"])


trainer = KernelTrainer(
    model(),
    args=arguments(SFTConfig),
    train_dataset=table(completions()),
    processing_class=tokenizer(),
)
trainer.train()
