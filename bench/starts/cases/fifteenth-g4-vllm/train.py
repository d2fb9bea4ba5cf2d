from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files={"train": "data/tours_train.jsonl", "test": "data/tours_test.jsonl"})

trainer = SFTTrainer(
    model="Qwen/Qwen2.5-7B-Instruct",
    args=SFTConfig(
        output_dir="adapters/tours",
        max_length=2048,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        gradient_checkpointing=True,
        assistant_only_loss=False,
        completion_only_loss=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=5,
        report_to="none",
    ),
    # rows: {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}]}
    train_dataset=rows["train"],
    eval_dataset=rows["test"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("adapters/tours")
