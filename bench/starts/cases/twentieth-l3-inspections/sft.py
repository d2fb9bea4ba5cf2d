from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

ds = load_dataset("json", data_files="train.jsonl", split="train").train_test_split(test_size=40, seed=1)

trainer = SFTTrainer(
    model="Qwen/Qwen3-8B",
    args=SFTConfig(
        output_dir="run",
        num_train_epochs=4,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=35,
        save_strategy="epoch",
        model_init_kwargs={"dtype": "bfloat16"},
        report_to="none",
    ),
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("run/final")
