import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

SFT = "ourteam/mistral-7b-household-sft"

tokenizer = AutoTokenizer.from_pretrained(SFT)
model = AutoModelForCausalLM.from_pretrained(SFT, torch_dtype=torch.bfloat16)
data = load_dataset("json", data_files="pairs.jsonl", split="train")

trainer = DPOTrainer(
    model,
    args=DPOConfig(
        "out-dpo",
        beta=0.1,
        learning_rate=5e-6,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        warmup_ratio=0.1,
        max_length=1024,
        bf16=True,
        logging_steps=3,
        report_to="none",
    ),
    train_dataset=data,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("out-dpo/final")
