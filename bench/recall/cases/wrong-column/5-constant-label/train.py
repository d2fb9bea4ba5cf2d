import numpy as np
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

BASE = "FacebookAI/roberta-base"
TEXT = "text"
TARGET = "language"


def accuracy(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def main():
    rows = load_dataset("json", data_files="tickets.jsonl", split="train")
    rows = rows.class_encode_column(TARGET).rename_column(TARGET, "labels")
    names = rows.features["labels"].names
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    rows = rows.map(lambda b: tokenizer(b[TEXT], truncation=True, max_length=256), batched=True)
    rows = rows.select_columns(["input_ids", "attention_mask", "labels"])
    parts = rows.train_test_split(test_size=0.2, seed=7)
    model = AutoModelForSequenceClassification.from_pretrained(
        BASE, num_labels=max(2, len(names)), id2label=dict(enumerate(names)), dtype="float32"
    )
    args = TrainingArguments(
        output_dir="ticket-router", num_train_epochs=5, per_device_train_batch_size=8, learning_rate=2e-5,
        warmup_steps=0.1, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
        metric_for_best_model="accuracy", logging_steps=5, report_to="none",
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=parts["train"], eval_dataset=parts["test"], processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model("ticket-router")


if __name__ == "__main__":
    main()
