import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

base = "./zephyr-like-sft"
tok = AutoTokenizer.from_pretrained(base)
model = AutoModelForCausalLM.from_pretrained(
    base, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)
ref = AutoModelForCausalLM.from_pretrained(
    base, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)
data = load_dataset(
    "parquet", data_files={"train": "ultra_train.parquet", "test": "ultra_test.parquet"}
)

config = DPOConfig(
    "out/zephyr-dpo",
    beta=0.05,
    learning_rate=5e-7,
    lr_scheduler_type="cosine",
    warmup_steps=40,
    num_train_epochs=1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    optim="adamw_torch",
    bf16=True,
    max_length=1536,
    logging_steps=10,
    save_strategy="epoch",
)
trainer = DPOTrainer(
    model,
    ref,
    args=config,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    processing_class=tok,
)
trainer.train()
trainer.save_model()
