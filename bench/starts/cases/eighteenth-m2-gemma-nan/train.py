import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "google/gemma-2-9b-it"

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="eager")
model.config.use_cache = False

data = load_dataset("json", data_files={"train": "contracts_train.jsonl", "dev": "contracts_dev.jsonl"})

args = SFTConfig(
    output_dir="gemma2-contracts",
    num_train_epochs=2,
    per_device_train_batch_size=2,
    per_device_eval_batch_size=2,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    max_length=2048,
    completion_only_loss=True,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=100,
    logging_steps=10,
    report_to="none",
)
trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["dev"],
    processing_class=tok,
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
merged = trainer.model.merge_and_unload()
merged.save_pretrained("gemma2-contracts/merged")
tok.save_pretrained("gemma2-contracts/merged")
