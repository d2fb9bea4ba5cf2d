from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

tok = tokenizer()


class Swapped(DataCollatorForPreference):
    def torch_call(self, examples):
        examples = [
            {**row, "chosen_ids": row["rejected_ids"], "rejected_ids": row["chosen_ids"]}
            for row in examples
        ]
        return super().torch_call(examples)


trainer = DPOTrainer(
    model(),
    model(),
    args=arguments(DPOConfig),
    train_dataset=table(pairs()),
    processing_class=tok,
    data_collator=Swapped(pad_token_id=tok.pad_token_id),
)
trainer.train()
