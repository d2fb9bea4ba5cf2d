import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

name = "google/gemma-2-2b-it"
tok = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype="bfloat16", attn_implementation="eager")
raw = load_dataset("json", data_files="recipes_chat.jsonl", split="train").train_test_split(
    0.1, seed=0
)


def encode(row):
    prompt = tok.apply_chat_template(
        row["messages"][:-1], add_generation_prompt=True, return_dict=False
    )
    full = tok.apply_chat_template(row["messages"], return_dict=False)[:1024]
    return {
        "input_ids": full,
        "attention_mask": [1] * len(full),
        "labels": ([-100] * len(prompt) + full[len(prompt) :])[:1024],
    }


data = raw.map(encode, remove_columns=raw["train"].column_names)


def argmax(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(-1)


def compute_metrics(pred):
    predictions = pred.predictions[:, :-1]
    labels = pred.label_ids[:, 1:]
    return {"token_accuracy": float((predictions == labels).mean())}


trainer = Trainer(
    model=model,
    args=TrainingArguments(
        "out/recipes",
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=50,
        save_strategy="epoch",
        report_to="none",
    ),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    data_collator=DataCollatorForSeq2Seq(tok, padding=True),
    compute_metrics=compute_metrics,
    preprocess_logits_for_metrics=argmax,
)
trainer.train()
