import argparse

from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="answerdotai/ModernBERT-base")
    p.add_argument("--out", default="runs/emotion")
    p.add_argument("--lr", type=float, default=3e-5)
    p.add_argument("--epochs", type=int, default=3)
    return p.parse_args()


def main():
    a = get_args()
    tok = AutoTokenizer.from_pretrained(a.model)
    ds = load_dataset("dair-ai/emotion")
    names = ds["train"].features["label"].names
    ds = ds.map(lambda b: tok(b["text"], truncation=True, max_length=256), batched=True, remove_columns=["text"])

    model = AutoModelForSequenceClassification.from_pretrained(
        a.model,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={n: i for i, n in enumerate(names)},
    )
    targs = TrainingArguments(
        output_dir=a.out,
        learning_rate=a.lr,
        num_train_epochs=a.epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        warmup_steps=100,
        weight_decay=0.01,
        bf16=True,
        logging_steps=50,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="f1",
        greater_is_better=True,
        seed=17,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=targs,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        data_collator=DataCollatorWithPadding(tok),
    )
    trainer.train()
    print(trainer.evaluate(ds["test"]))
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
