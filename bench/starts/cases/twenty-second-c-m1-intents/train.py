import numpy as np
import evaluate
from datasets import ClassLabel, load_dataset
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding,
                          Trainer, TrainingArguments)

BASE = "Qwen/Qwen2.5-0.5B-Instruct"
LABELS = ["delivery", "refund", "damaged", "account", "payment", "other"]

ds = load_dataset("json", data_files={"train": "data/train.jsonl", "val": "data/val.jsonl"})
ds = ds.cast_column("label", ClassLabel(names=LABELS))
tok = AutoTokenizer.from_pretrained(BASE)
ds = ds.map(lambda b: tok(b["text"], truncation=True, max_length=256), batched=True, remove_columns=["text"])

model = AutoModelForSequenceClassification.from_pretrained(
    BASE, num_labels=len(LABELS), id2label=dict(enumerate(LABELS)), label2id={n: i for i, n in enumerate(LABELS)})
model.config.pad_token_id = tok.pad_token_id
acc = evaluate.load("accuracy")


def metrics(p):
    return acc.compute(predictions=np.argmax(p.predictions, -1), references=p.label_ids)


args = TrainingArguments(
    "out", per_device_train_batch_size=32, per_device_eval_batch_size=64, learning_rate=2e-5, num_train_epochs=4,
    warmup_ratio=0.05, lr_scheduler_type="linear", eval_strategy="epoch", save_strategy="epoch", bf16=True,
    load_best_model_at_end=True, metric_for_best_model="accuracy", logging_steps=20, seed=1, report_to="none")
trainer = Trainer(model=model, args=args, train_dataset=ds["train"], eval_dataset=ds["val"],
                  processing_class=tok, data_collator=DataCollatorWithPadding(tok), compute_metrics=metrics)
trainer.train()
trainer.save_model("out/best")
