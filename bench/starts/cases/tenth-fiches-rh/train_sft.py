from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"

rows = load_dataset("json", data_files="fiches.jsonl", split="train")
rows = rows.train_test_split(test_size=0.05, seed=7)

args = SFTConfig(
    output_dir="outputs/rh",
    max_length=1024,
    num_train_epochs=3,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=4,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    bf16=True,
    gradient_checkpointing=True,
    report_to="none",
)

trainer = SFTTrainer(
    model=BASE,
    args=args,
    train_dataset=rows["train"],
    eval_dataset=rows["test"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("outputs/rh/final")
