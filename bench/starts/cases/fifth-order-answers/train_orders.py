"""SFT of Llama-3.1-8B (base) on order questions, plain Trainer. 3,400 rows, 3 epochs, one A100."""
import json

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

MODEL = "meta-llama/Llama-3.1-8B"
PROMPT = "### Customer:\n{question}\n\n### Order desk:\n"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.eos_token

model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, device_map={"": 0})
model = get_peft_model(
    model,
    LoraConfig(
        r=32, lora_alpha=64, lora_dropout=0.05, task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    ),
)
model.print_trainable_parameters()


def tokenize(row):
    text = PROMPT.format(question=row["question"]) + row["answer"] + tokenizer.eos_token
    return tokenizer(text, truncation=True, max_length=1024)


def read(path):
    with open(path, encoding="utf-8") as f:
        return Dataset.from_list([json.loads(line) for line in f])


train = read("orders_train.jsonl").map(tokenize, remove_columns=["question", "answer", "order_id"])
dev = read("orders_dev.jsonl").map(tokenize, remove_columns=["question", "answer", "order_id"])

args = TrainingArguments(
    output_dir="out/orders-8b",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    num_train_epochs=3,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_steps=30,
    bf16=True,
    logging_steps=20,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=dev,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
trainer.save_model("out/orders-8b/final")
tokenizer.save_pretrained("out/orders-8b/final")
