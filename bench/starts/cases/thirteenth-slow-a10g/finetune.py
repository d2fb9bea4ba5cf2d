import json
import os

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
MAX_LEN = 4096
OUT = "out/hotel-lora"

tokenizer = AutoTokenizer.from_pretrained(BASE)


def load(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def encode(row):
    messages = [
        {"role": "system", "content": "You answer guests of Hotel Seeblick."},
        {"role": "user", "content": row["question"]},
    ]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    full = prompt + row["answer"] + "<|im_end|>\n"
    n_prompt = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    enc = tokenizer(
        full,
        add_special_tokens=False,
        max_length=MAX_LEN,
        truncation=True,
        padding="max_length",
    )
    labels = [
        tok if (mask == 1 and i >= n_prompt) else -100
        for i, (tok, mask) in enumerate(zip(enc["input_ids"], enc["attention_mask"]))
    ]
    enc["labels"] = labels
    return enc


train = Dataset.from_list(load("data/train.jsonl"))
train = train.map(encode, remove_columns=train.column_names)

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")
model.config.use_cache = False
model.enable_input_require_grads()
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
model.print_trainable_parameters()

args = TrainingArguments(
    output_dir=OUT,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    num_train_epochs=3,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_steps=5,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=2,
    save_strategy="epoch",
    dataloader_num_workers=2,
    report_to="none",
    seed=3,
)

trainer = Trainer(model=model, args=args, train_dataset=train, data_collator=default_data_collator)
trainer.train()

model.config.use_cache = True
model.save_pretrained(OUT)
tokenizer.save_pretrained(OUT)
print("saved to", os.path.abspath(OUT))
