import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen3-4B-Instruct-2507"

ds = load_dataset("json", data_files="train.jsonl", split="train").select_columns(["messages"])


def to_prompt_completion(row):
    return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}


ds = ds.map(to_prompt_completion, remove_columns=["messages"]).train_test_split(test_size=0.1, seed=1)

trainer = SFTTrainer(
    model=MODEL,
    args=SFTConfig(
        output_dir="out/paperline-4b",
        model_init_kwargs={"dtype": torch.bfloat16},
        max_length=1024,
        num_train_epochs=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=1,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=15,
        bf16=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    ),
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
