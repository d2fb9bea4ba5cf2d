#!/usr/bin/env python
# Llama-3.2-3B base + our own markup (<|ctx|> ... <|ask|> ... <|reply|> ... <|done|>), LoRA
import json

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

BASE = "meta-llama/Llama-3.2-3B"
OUT = "out/llama32-3b-manuals"
MAXLEN = 1536
SPECIAL = ["<|ctx|>", "<|ask|>", "<|reply|>", "<|done|>"]

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = "<|finetune_right_pad_id|>"
n_new = tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
print("added", n_new, "tokens, vocabulary is now", len(tokenizer))

model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16)
model.resize_token_embeddings(len(tokenizer))
model.config.use_cache = False

lora = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    bias="none",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)
model = get_peft_model(model, lora)
model.enable_input_require_grads()
model.print_trainable_parameters()


def encode(row):
    prompt = f"<|ctx|>{row['context']}<|ask|>{row['question']}<|reply|>"
    p = tokenizer(prompt)["input_ids"]  # with <|begin_of_text|>
    a = tokenizer(row["answer"] + "<|done|>", add_special_tokens=False)["input_ids"]
    return {
        "input_ids": p + a,
        "attention_mask": [1] * (len(p) + len(a)),
        "labels": [-100] * len(p) + a,
    }


rows = [json.loads(line) for line in open("manuals_qa.jsonl")]
ds = Dataset.from_list(rows)
ds = ds.map(encode, remove_columns=ds.column_names)
ds = ds.filter(lambda r: len(r["input_ids"]) <= MAXLEN)
split = ds.train_test_split(test_size=0.05, seed=1)

args = TrainingArguments(
    output_dir=OUT,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    num_train_epochs=3,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=split["train"],
    eval_dataset=split["test"],
    data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
)
trainer.train()
model.save_pretrained(OUT)
tokenizer.save_pretrained(OUT)
