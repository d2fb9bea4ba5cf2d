import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype=torch.bfloat16)
trainer = SFTTrainer(
    model,
    train_dataset=load_dataset("json", data_files="sft.jsonl", split="train"),
    peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        "out/sft", num_train_epochs=3, learning_rate=2e-4, lr_scheduler_type="cosine", warmup_ratio=0.03,
        per_device_train_batch_size=8, gradient_accumulation_steps=2, max_length=2048, bf16=True,
        gradient_checkpointing=True, logging_steps=10, report_to="none",
    ),
)
trainer.train()
trainer.save_model("out/sft")
