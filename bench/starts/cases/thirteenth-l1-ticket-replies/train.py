from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

data = load_dataset("json", data_files={"train": "sft_train.jsonl", "eval": "sft_eval.jsonl"})

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

args = SFTConfig(
    output_dir="out-replies",
    max_length=2048,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    num_train_epochs=3,
    learning_rate=2e-4,
    lr_scheduler_type="linear",
    bf16=True,
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=2,
    report_to="none",
)

trainer = SFTTrainer(
    model="Qwen/Qwen2.5-1.5B",
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["eval"],
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("out-replies/final")
