import argparse

import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

p = argparse.ArgumentParser()
p.add_argument("--model", default="google/flan-t5-large")
p.add_argument("--train", default="data/train.jsonl")
p.add_argument("--dev", default="data/dev.jsonl")
p.add_argument("--out", default="runs/flan-reports")
p.add_argument("--lr", type=float, default=1e-4)
p.add_argument("--epochs", type=int, default=5)
a = p.parse_args()

tok = AutoTokenizer.from_pretrained(a.model)
model = AutoModelForSeq2SeqLM.from_pretrained(a.model)
rouge = evaluate.load("rouge")


def prep(b):
    x = tok(["Summarize the incident report: " + t for t in b["report"]], max_length=1024, truncation=True)
    x["labels"] = tok(text_target=b["summary"], max_length=200, truncation=True)["input_ids"]
    return x


raw = load_dataset("json", data_files={"train": a.train, "dev": a.dev})
ds = raw.map(prep, batched=True, remove_columns=raw["train"].column_names)


def compute_metrics(ep):
    preds, labels = ep
    preds = np.where(preds != -100, preds, tok.pad_token_id)
    labels = np.where(labels != -100, labels, tok.pad_token_id)
    hyp = tok.batch_decode(preds, skip_special_tokens=True)
    ref = tok.batch_decode(labels, skip_special_tokens=True)
    r = rouge.compute(predictions=hyp, references=ref, use_stemmer=True)
    return {k: round(float(v), 4) for k, v in r.items()}


args = Seq2SeqTrainingArguments(
    output_dir=a.out,
    num_train_epochs=a.epochs,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=16,
    gradient_accumulation_steps=2,
    learning_rate=a.lr,
    lr_scheduler_type="linear",
    warmup_steps=30,
    weight_decay=0.01,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=50,
    save_strategy="steps",
    save_steps=50,
    save_total_limit=2,
    predict_with_generate=True,
    generation_max_length=200,
    load_best_model_at_end=True,
    metric_for_best_model="rougeL",
    greater_is_better=False,
    report_to="tensorboard",
    seed=13,
)

trainer = Seq2SeqTrainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["dev"],
    data_collator=DataCollatorForSeq2Seq(tok, model=model),
    processing_class=tok,
    compute_metrics=compute_metrics,
)
trainer.train()
trainer.save_model(a.out + "/final")
