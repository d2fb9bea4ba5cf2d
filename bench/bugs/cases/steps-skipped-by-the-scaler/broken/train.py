import torch
from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

llama = model()
with torch.no_grad():
    llama.model.layers[1].mlp.down_proj.weight *= 1e6
    llama.model.layers[1].mlp.up_proj.weight *= 1e3
trainer = SFTTrainer(
    llama.to(torch.float16),
    args=arguments(SFTConfig, learning_rate=1e-3),
    train_dataset=table(completions()),
    processing_class=tokenizer(),
)
trainer.train()
