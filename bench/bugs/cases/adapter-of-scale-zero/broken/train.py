from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

trainer = SFTTrainer(
    model(),
    args=arguments(SFTConfig),
    train_dataset=table(completions()),
    processing_class=tokenizer(),
    peft_config=LoraConfig(
        task_type="CAUSAL_LM", lora_alpha=0, target_modules=["q_proj", "v_proj"]
    ),
)
trainer.train()
