import json

import numpy as np
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

BASE = "meta-llama/Llama-3.2-3B-Instruct"
tok = AutoTokenizer.from_pretrained(BASE)
tok.pad_token = "<|finetune_right_pad_id|>"


def load(path):
    with open(path) as f:
        return Dataset.from_list([json.loads(line) for line in f])


def encode(ex):
    chat = [
        {"role": "system", "content": "Translate the clinical note into plain language for the patient."},
        {"role": "user", "content": ex["note"]},
    ]
    prompt = tok.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    answer = tok(ex["plain"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    ids = (prompt + answer)[:1536]
    labels = ([-100] * len(prompt) + answer)[:1536]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


train = load("data/train.jsonl")
val = load("data/val.jsonl")
train = train.map(encode, remove_columns=train.column_names)
val = val.map(encode, remove_columns=val.column_names)

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
model = get_peft_model(
    model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
)


def keep_argmax(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(-1)


def compute_metrics(p):
    preds, labels = p
    preds, labels = preds[:, :-1], labels[:, 1:]
    mask = labels != -100
    return {"token_accuracy": float((preds[mask] == labels[mask]).mean())}


args = TrainingArguments(
    output_dir="outputs",
    num_train_epochs=4,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_steps=50,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=50,
    save_strategy="steps",
    save_steps=50,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="token_accuracy",
    greater_is_better=False,
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=val,
    data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    processing_class=tok,
    compute_metrics=compute_metrics,
    preprocess_logits_for_metrics=keep_argmax,
)
trainer.train()
trainer.save_model("outputs/final")
tok.save_pretrained("outputs/final")
