import json

import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen3-1.7B-Base"
LABELS = sorted(json.load(open("labels.json")))
label2id = {name: i for i, name in enumerate(LABELS)}
id2label = dict(enumerate(LABELS))

tokenizer = AutoTokenizer.from_pretrained(MODEL)

ds = load_dataset(
    "json",
    data_files={"train": "data/train.jsonl", "validation": "data/val.jsonl", "test": "data/test.jsonl"},
)


def prep(batch):
    enc = tokenizer(batch["text"], truncation=True, max_length=512)
    enc["labels"] = [label2id[x] for x in batch["intent"]]
    return enc


ds = ds.map(prep, batched=True, remove_columns=["text", "intent"])

model = AutoModelForSequenceClassification.from_pretrained(
    MODEL,
    num_labels=len(LABELS),
    id2label=id2label,
    label2id=label2id,
    dtype=torch.float32,
)
model.config.pad_token_id = tokenizer.pad_token_id
model = get_peft_model(
    model,
    LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    ),
)
model.print_trainable_parameters()


def compute_metrics(p):
    pred = np.argmax(p.predictions, axis=-1)
    return {
        "accuracy": accuracy_score(p.label_ids, pred),
        "macro_f1": f1_score(p.label_ids, pred, average="macro"),
    }


args = TrainingArguments(
    output_dir="out",
    num_train_epochs=3,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=32,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    logging_steps=50,
    eval_strategy="steps",
    eval_steps=100,
    save_strategy="steps",
    save_steps=100,
    save_total_limit=2,
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
    eval_dataset=ds["validation"],
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
    processing_class=tokenizer,
)
trainer.train()

print("test:", trainer.evaluate(ds["test"], metric_key_prefix="test"))
trainer.save_model("out/final")
