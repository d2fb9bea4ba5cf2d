import numpy as np
import pandas as pd
from datasets import Dataset
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import train_test_split
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen2.5-0.5B"
SEED = 42


def balance(df, column):
    size = df[column].value_counts().max()
    parts = [
        g if len(g) == size else pd.concat([g, g.sample(size - len(g), replace=True, random_state=SEED)])
        for _, g in df.groupby(column)
    ]
    return pd.concat(parts).sample(frac=1.0, random_state=SEED).reset_index(drop=True)


def load(path):
    df = pd.read_csv(path).dropna(subset=["text", "queue"])
    df["text"] = df["text"].str.strip()
    df = df.drop_duplicates("text")
    names = sorted(df["queue"].unique())
    df["label"] = df["queue"].map({n: i for i, n in enumerate(names)})
    df = balance(df, "label")
    train, test = train_test_split(df, test_size=0.2, stratify=df["label"], random_state=SEED)
    return train, test, names


def metrics(p):
    pred = np.argmax(p.predictions, axis=-1)
    return {
        "accuracy": accuracy_score(p.label_ids, pred),
        "f1_macro": f1_score(p.label_ids, pred, average="macro"),
    }


def main():
    train, test, names = load("tickets.csv")
    print(f"train {len(train)} test {len(test)} classes {len(names)}")
    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(
        MODEL, num_labels=len(names), id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)}
    )
    model.config.pad_token_id = tok.pad_token_id

    def enc(batch):
        return tok(batch["text"], truncation=True, max_length=256)

    keep = ["text", "label"]
    ds = {
        k: Dataset.from_pandas(v[keep], preserve_index=False).map(enc, batched=True, remove_columns=["text"])
        for k, v in (("train", train), ("test", test))
    }
    args = TrainingArguments(
        output_dir="router",
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        num_train_epochs=4,
        learning_rate=2e-5,
        warmup_ratio=0.05,
        lr_scheduler_type="linear",
        weight_decay=0.01,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="f1_macro",
        logging_steps=50,
        report_to="none",
        seed=SEED,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
        data_collator=DataCollatorWithPadding(tok),
        compute_metrics=metrics,
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model("router/best")


if __name__ == "__main__":
    main()
