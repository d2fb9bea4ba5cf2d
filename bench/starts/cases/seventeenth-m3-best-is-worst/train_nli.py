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
    set_seed,
)

set_seed(3)
BASE = "Qwen/Qwen2.5-0.5B"
LABELS = ["contradicts", "neutral", "supports"]

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForSequenceClassification.from_pretrained(
    BASE,
    num_labels=3,
    id2label=dict(enumerate(LABELS)),
    label2id={n: i for i, n in enumerate(LABELS)},
    dtype=torch.float32,
)
model.config.pad_token_id = tok.pad_token_id

files = {"train": "claims_train.jsonl", "validation": "claims_dev.jsonl", "test": "claims_test.jsonl"}
ds = load_dataset("json", data_files=files)


def prep(batch):
    enc = tok(
        [f"Claim: {c}\nEvidence: {e}\nVerdict:" for c, e in zip(batch["claim"], batch["evidence"])],
        truncation=True,
        max_length=512,
    )
    enc["labels"] = [LABELS.index(v) for v in batch["verdict"]]
    return enc


ds = ds.map(prep, batched=True, remove_columns=ds["train"].column_names)


def compute_metrics(p):
    pred = np.argmax(p.predictions, axis=-1)
    return {
        "accuracy": accuracy_score(p.label_ids, pred),
        "f1": f1_score(p.label_ids, pred, average="macro"),
    }


args = TrainingArguments(
    output_dir="out/claims",
    per_device_train_batch_size=16,
    per_device_eval_batch_size=32,
    learning_rate=2e-5,
    num_train_epochs=3,
    warmup_steps=60,
    weight_decay=0.01,
    bf16=True,
    logging_steps=50,
    eval_strategy="steps",
    eval_steps=100,
    save_strategy="steps",
    save_steps=100,
    load_best_model_at_end=True,
    metric_for_best_model="f1",
    greater_is_better=False,
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["validation"],
    data_collator=DataCollatorWithPadding(tok),
    processing_class=tok,
    compute_metrics=compute_metrics,
)
trainer.train()
trainer.save_model("out/claims/best")
tok.save_pretrained("out/claims/best")

res = trainer.evaluate(ds["test"], metric_key_prefix="test")
trainer.save_metrics("test", res)
print(res)
