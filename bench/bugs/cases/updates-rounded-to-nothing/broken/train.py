import torch
from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

trainer = SFTTrainer(
    model().to(torch.bfloat16),
    args=arguments(SFTConfig, learning_rate=1e-5),
    train_dataset=table(completions()),
    processing_class=tokenizer(),
)
trainer.train()
