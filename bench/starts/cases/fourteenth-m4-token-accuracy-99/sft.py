from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

data = load_dataset("json", data_files={"train": "data/train.jsonl", "eval": "data/eval.jsonl"})

config = SFTConfig(
    output_dir="out/kostenstellen",
    num_train_epochs=4,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_steps=5,
    max_length=2048,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    logging_steps=8,
    eval_strategy="steps",
    eval_steps=24,
    save_strategy="epoch",
    report_to="none",
    model_init_kwargs={"dtype": "bfloat16"},
    seed=3,
)

trainer = SFTTrainer(
    model="Qwen/Qwen2.5-7B-Instruct",
    args=config,
    train_dataset=data["train"],
    eval_dataset=data["eval"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear"),
)
trainer.train()
trainer.save_model("out/kostenstellen/final")
