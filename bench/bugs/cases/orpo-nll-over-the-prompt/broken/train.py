from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer

Own = ORPOTrainer


trainer = Own(
    model(), args=arguments(ORPOConfig), train_dataset=table(pairs()), processing_class=tokenizer()
)
trainer.train()
