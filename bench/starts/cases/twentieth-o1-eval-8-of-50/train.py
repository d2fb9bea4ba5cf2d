import json

import numpy as np
import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

MODEL = "meta-llama/Llama-3.2-1B-Instruct"
MAX_LEN = 1024

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
model.config.pad_token_id = tokenizer.pad_token_id


def encode(row):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": row["question"]}],
        tokenize=False,
        add_generation_prompt=True,
    )
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    a = tokenizer(row["answer"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    ids = (p + a)[:MAX_LEN]
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": ([-100] * len(p) + a)[:MAX_LEN],
    }


def compute_metrics(pred):
    logits, labels = pred
    guess = np.argmax(logits[:, :-1], axis=-1)
    gold = labels[:, 1:]
    keep = gold != -100
    return {"token_accuracy": float((guess[keep] == gold[keep]).mean())}


data = load_dataset("json", data_files={"train": "qa_train.jsonl", "eval": "qa_eval.jsonl"})
data = data.map(encode, remove_columns=["question", "answer"])

args = TrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_steps=10,
    bf16=True,
    eval_strategy="steps",
    eval_steps=50,
    save_strategy="epoch",
    logging_steps=10,
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["eval"],
    data_collator=DataCollatorForSeq2Seq(
        tokenizer, padding="max_length", max_length=MAX_LEN, label_pad_token_id=-100
    ),
    compute_metrics=compute_metrics,
)
trainer.train()
trainer.save_model("out/final")
