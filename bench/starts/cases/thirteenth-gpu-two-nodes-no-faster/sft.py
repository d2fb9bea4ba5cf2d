import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

ap = argparse.ArgumentParser()
ap.add_argument("--output_dir", required=True)
cli = ap.parse_args()

ds = load_dataset("acme-internal/field-service-chats", split="train")
ds = ds.select_columns(["messages"])

trainer = SFTTrainer(
    model="Qwen/Qwen3-8B",
    train_dataset=ds,
    args=SFTConfig(
        output_dir=cli.output_dir,
        model_init_kwargs={"dtype": torch.bfloat16, "attn_implementation": "flash_attention_2"},
        max_length=4096,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        logging_steps=10,
        save_steps=200,
        save_total_limit=2,
        report_to="none",
    ),
    peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
