import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

train = load_dataset("json", data_files="train.jsonl", split="train")
valid = load_dataset("json", data_files="valid.jsonl", split="train")

args = SFTConfig(
    output_dir="out/sum-lora",
    max_length=512,
    completion_only_loss=True,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=1,
    gradient_accumulation_steps=2,
    learning_rate=2e-4,
    num_train_epochs=2,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=40,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    save_steps=40,
    model_init_kwargs={"torch_dtype": torch.bfloat16},
    report_to="none",
)
trainer = SFTTrainer(
    model="Qwen/Qwen2.5-1.5B-Instruct",
    args=args,
    train_dataset=train,
    eval_dataset=valid,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
