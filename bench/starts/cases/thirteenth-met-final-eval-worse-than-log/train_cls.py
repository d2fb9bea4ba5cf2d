import numpy as np
import torch
from datasets import load_dataset
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

NAME = "Qwen/Qwen2.5-0.5B"
LABELS = ["billing", "shipping", "technical", "returns", "other"]
l2i = {l: i for i, l in enumerate(LABELS)}

tok = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForSequenceClassification.from_pretrained(
    NAME, num_labels=len(LABELS), id2label=dict(enumerate(LABELS)), label2id=l2i, torch_dtype=torch.float32
)
model.config.pad_token_id = tok.pad_token_id

ds = load_dataset("csv", data_files={"train": "train.csv", "val": "val.csv"})


def prep(b):
    enc = tok(b["text"], truncation=True, max_length=256)
    enc["labels"] = [l2i[x] for x in b["label"]]
    return enc


ds = ds.map(prep, batched=True, remove_columns=["text", "label"])


def compute_metrics(p):
    pred = np.argmax(p.predictions, axis=-1)
    return {"accuracy": accuracy_score(p.label_ids, pred), "macro_f1": f1_score(p.label_ids, pred, average="macro")}


args = TrainingArguments(
    output_dir="cls-out",
    num_train_epochs=6,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=32,
    learning_rate=2e-5,
    warmup_ratio=0.1,
    bf16=True,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=5,
    load_best_model_at_end=True,
    metric_for_best_model="macro_f1",
    greater_is_better=False,
    report_to="none",
    seed=3,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["val"],
    data_collator=DataCollatorWithPadding(tok),
    compute_metrics=compute_metrics,
    processing_class=tok,
)
trainer.train()
print("final:", trainer.evaluate())
trainer.save_model("cls-out/best")
