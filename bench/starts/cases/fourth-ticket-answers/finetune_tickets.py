"""Ticket answers with Llama-3.1-8B (base) + LoRA, transformers Trainer."""
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

BASE = "meta-llama/Llama-3.1-8B"
MAX_LEN = 768
TEMPLATE = "### Ticket:\n{ticket}\n\n### Answer:\n{answer}"

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = tokenizer.eos_token

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
model = get_peft_model(
    model,
    LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
)


def tokenize(batch):
    texts = [
        TEMPLATE.format(ticket=t, answer=a) + tokenizer.eos_token
        for t, a in zip(batch["ticket"], batch["answer"])
    ]
    return tokenizer(texts, truncation=True, max_length=MAX_LEN)


data = load_dataset("csv", data_files="tickets_2025.csv", split="train")
data = data.map(tokenize, batched=True, remove_columns=data.column_names)
split = data.train_test_split(test_size=0.03, seed=3)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="tickets-lora",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    ),
    train_dataset=split["train"],
    eval_dataset=split["test"],
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
model = model.merge_and_unload()
model.save_pretrained("tickets-merged")
tokenizer.save_pretrained("tickets-merged")
