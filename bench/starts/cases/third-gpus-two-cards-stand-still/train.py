from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

data = load_dataset("json", data_files="tickets.jsonl", split="train").train_test_split(
    0.05, seed=3
)
trainer = SFTTrainer(
    "meta-llama/Llama-3.1-8B-Instruct",
    args=SFTConfig(
        "out/tickets",
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        logging_steps=5,
        bf16=True,
        max_length=2048,
        eval_strategy="epoch",
        gradient_checkpointing=True,
        model_init_kwargs={"dtype": "bfloat16"},
    ),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("out/tickets/final")
