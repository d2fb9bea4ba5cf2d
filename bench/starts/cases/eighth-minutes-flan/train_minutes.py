#!/usr/bin/env python
"""Summaries of council minutes with flan-t5-large (one RTX 4090)."""
import nltk
import numpy as np
import evaluate
from datasets import load_dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

CHECKPOINT = "google/flan-t5-large"
MAX_SOURCE = 1024
MAX_TARGET = 220  # the longest summary of the clerks has 190 tokens
PREFIX = "Summarise the minutes for the newsletter: "

tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
model = AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT)
rouge = evaluate.load("rouge")

data = load_dataset("json", data_files={"train": "data/minutes_train.jsonl", "validation": "data/minutes_val.jsonl"})


def preprocess(batch):
    inputs = tokenizer([PREFIX + m for m in batch["minutes"]], max_length=MAX_SOURCE, truncation=True)
    targets = tokenizer(text_target=batch["summary"], max_length=MAX_TARGET, truncation=True)
    inputs["labels"] = targets["input_ids"]
    return inputs


tokenized = data.map(preprocess, batched=True, remove_columns=data["train"].column_names)


def postprocess(texts):
    # rougeLsum wants one sentence a line
    return ["\n".join(nltk.sent_tokenize(t.strip())) for t in texts]


def compute_metrics(eval_pred):
    predictions, labels = eval_pred
    predictions = np.where(predictions != -100, predictions, tokenizer.pad_token_id)
    labels = np.where(labels != -100, labels, tokenizer.pad_token_id)
    decoded = tokenizer.batch_decode(predictions, skip_special_tokens=True)
    references = tokenizer.batch_decode(labels, skip_special_tokens=True)
    result = rouge.compute(predictions=postprocess(decoded), references=postprocess(references), use_stemmer=True)
    result = {k: round(v * 100, 4) for k, v in result.items()}
    result["gen_len"] = float(np.mean([np.count_nonzero(p != tokenizer.pad_token_id) for p in predictions]))
    return result


args = Seq2SeqTrainingArguments(
    output_dir="minutes-flan-t5",
    eval_strategy="epoch",
    save_strategy="epoch",
    learning_rate=1e-4,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=4,
    num_train_epochs=5,
    warmup_ratio=0.05,
    weight_decay=0.01,
    save_total_limit=2,
    predict_with_generate=True,
    load_best_model_at_end=True,
    metric_for_best_model="rougeL",
    bf16=True,
    logging_steps=25,
    report_to="none",
)

trainer = Seq2SeqTrainer(
    model=model,
    args=args,
    train_dataset=tokenized["train"],
    eval_dataset=tokenized["validation"],
    data_collator=DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=-100),
    processing_class=tokenizer,
    compute_metrics=compute_metrics,
)

trainer.train()
trainer.save_model("minutes-flan-t5/best")
