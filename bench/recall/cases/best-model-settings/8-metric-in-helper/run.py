from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from scoring import build

BASE = "answerdotai/ModernBERT-base"


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("dair-ai/emotion")
    names = ds["train"].features["label"].names
    ds = ds.map(lambda b: tok(b["text"], truncation=True, max_length=256), batched=True, remove_columns=["text"])
    model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=len(names))
    args = TrainingArguments(
        output_dir="runs/emotion",
        learning_rate=3e-5,
        num_train_epochs=3,
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
        metric_for_best_model="macro_f1",
        greater_is_better=True,
        seed=17,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        data_collator=DataCollatorWithPadding(tok),
        compute_metrics=build(names),
    )
    trainer.train()
    print(trainer.evaluate(ds["test"]))
    trainer.save_model("runs/emotion/best")


if __name__ == "__main__":
    main()
