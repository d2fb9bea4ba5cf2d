"""Route mails to one of 14 teams. Qwen2.5-0.5B with a classification head."""
import json

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

BASE = "Qwen/Qwen2.5-0.5B"
TEAMS = json.load(open("teams.json"))
tok = AutoTokenizer.from_pretrained(BASE)


def encode(batch):
    out = tok([f"{s}\n\n{b}" for s, b in zip(batch["subject"], batch["body"])], truncation=True, max_length=512)
    out["labels"] = [TEAMS.index(t) for t in batch["team"]]
    return out


def metrics(p):
    guess = np.argmax(p.predictions, axis=-1)
    return {"accuracy": accuracy_score(p.label_ids, guess), "macro_f1": f1_score(p.label_ids, guess, average="macro")}


def main():
    data = load_dataset("json", data_files={"train": "mails_train.jsonl", "dev": "mails_dev.jsonl"})
    data = data.map(encode, batched=True, remove_columns=data["train"].column_names)
    model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=len(TEAMS), torch_dtype=torch.float32)
    model.config.pad_token_id = tok.pad_token_id

    args = TrainingArguments(
        output_dir="router",
        num_train_epochs=3,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=2e-5,
        warmup_ratio=0.06,
        lr_scheduler_type="linear",
        bf16=True,
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="macro_f1",
        greater_is_better=False,
        report_to="none",
    )
    trainer = Trainer(model=model, args=args, train_dataset=data["train"], eval_dataset=data["dev"],
                      data_collator=DataCollatorWithPadding(tok), compute_metrics=metrics)
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model("router/final")
    tok.save_pretrained("router/final")


if __name__ == "__main__":
    main()
