import os
from datasets import load_dataset
from transformers import AutoTokenizer, AutoModelForCausalLM
from trl import SFTTrainer, SFTConfig
import torch

base = "Qwen/Qwen2.5-7B"
tokenizer = AutoTokenizer.from_pretrained(base)   # chatml template is already in the base tokenizer
model = AutoModelForCausalLM.from_pretrained(base, torch_dtype=torch.bfloat16, attn_implementation="sdpa")

train = load_dataset("json", data_files="data/support_train.jsonl", split="train")

cfg = SFTConfig(
    output_dir="/scratch/runs/support-7b",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    max_length=4096,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=5,
    save_strategy="epoch",
    save_only_model=True,
    report_to="wandb",
    run_name="support-7b-full",
)

trainer = SFTTrainer(model=model, args=cfg, train_dataset=train, processing_class=tokenizer)
trainer.train()
trainer.save_model("/scratch/models/support-7b")
tokenizer.save_pretrained("/scratch/models/support-7b")
