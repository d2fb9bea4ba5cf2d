import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
set_seed(42)
tok = AutoTokenizer.from_pretrained(MODEL)


def encode(row):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["instruction"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["output"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def compute_metrics(pred):
    logits, labels = pred
    guesses = np.argmax(logits, axis=-1)[:, :-1]
    labels = labels[:, 1:]
    kept = labels != -100
    return {"token_accuracy": float((guesses[kept] == labels[kept]).mean())}


ds = load_dataset("json", data_files={"train": "data/train.jsonl", "valid": "data/valid.jsonl"})
ds = ds.map(encode, remove_columns=ds["train"].column_names)
ds = ds.filter(lambda r: len(r["input_ids"]) <= 1024)

model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
model = get_peft_model(
    model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="runs/instruct",
        learning_rate=2e-4,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="token_accuracy",
        greater_is_better=True,
        report_to="none",
    ),
    train_dataset=ds["train"],
    eval_dataset=ds["valid"],
    data_collator=DataCollatorForSeq2Seq(tok),
    compute_metrics=compute_metrics,
    processing_class=tok,
)
trainer.train()
trainer.save_model("runs/instruct")
