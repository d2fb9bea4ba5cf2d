"""LoRA on 10k answered tickets (Qwen2.5-14B-Instruct)."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-14B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")

train = load_dataset("json", data_files="tickets_train.jsonl", split="train")   # column: messages
valid = load_dataset("json", data_files="tickets_valid.jsonl", split="train")

config = SFTConfig(
    output_dir="/data/adapters/tickets-qwen14b-r32",
    max_length=4096,
    assistant_only_loss=False,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=16,
    gradient_checkpointing=True,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    num_train_epochs=2,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=80,
    report_to="wandb",
)
peft_config = LoraConfig(
    r=32,
    lora_alpha=64,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)

trainer = SFTTrainer(
    model=model,
    args=config,
    train_dataset=train,
    eval_dataset=valid,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model()
