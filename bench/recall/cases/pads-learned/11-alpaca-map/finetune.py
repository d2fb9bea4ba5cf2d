import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

BASE = "Qwen/Qwen2.5-3B-Instruct"
MAX_LEN = 1024

set_seed(42)
tokenizer = AutoTokenizer.from_pretrained(BASE, padding_side="right")


def tokenize(row):
    text = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": row["instruction"]},
            {"role": "assistant", "content": row["output"]},
        ],
        tokenize=False,
    )
    enc = tokenizer(
        text, add_special_tokens=False, truncation=True, max_length=MAX_LEN, padding="max_length"
    )
    enc["labels"] = enc["input_ids"].copy()
    return enc


data = load_dataset("json", data_files="data/alpaca_de.jsonl", split="train")
data = data.map(tokenize, remove_columns=data.column_names)
data = data.train_test_split(test_size=0.05, seed=42)

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
model = get_peft_model(
    model,
    LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
model.print_trainable_parameters()

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="runs/alpaca-de",
        learning_rate=2e-4,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=20,
        report_to="none",
    ),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    data_collator=default_data_collator,
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("runs/alpaca-de")
