import torch
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

llama = model()
llama.model.vision_proj = torch.nn.Linear(32, 32)
trainer = SFTTrainer(
    llama,
    args=arguments(SFTConfig),
    train_dataset=table(completions()),
    processing_class=tokenizer(),
    peft_config=LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]),
)
trainer.train()
