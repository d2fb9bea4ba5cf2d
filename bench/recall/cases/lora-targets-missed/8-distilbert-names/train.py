import argparse

import numpy as np
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

LABELS = ["negative", "neutral", "positive"]


def accuracy(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="distilbert/distilbert-base-uncased")
    ap.add_argument("--targets", nargs="+", default=["q_lin", "v_lin"])
    ap.add_argument("--out", default="sentiment-lora")
    args = ap.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    model = AutoModelForSequenceClassification.from_pretrained(
        args.base, num_labels=3, id2label=dict(enumerate(LABELS)), dtype="float32"
    )
    lora = LoraConfig(
        task_type=TaskType.SEQ_CLS, r=8, lora_alpha=16, lora_dropout=0.1, target_modules=args.targets,
        modules_to_save=["pre_classifier", "classifier"],
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()
    data = load_dataset("json", data_files={"train": "train.jsonl", "test": "test.jsonl"})
    data = data.map(lambda b: tokenizer(b["text"], truncation=True, max_length=512), batched=True, remove_columns=["text"])
    ta = TrainingArguments(
        output_dir=args.out, num_train_epochs=5, per_device_train_batch_size=32, learning_rate=2e-4, warmup_steps=0.06,
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="accuracy",
        bf16=True, logging_steps=20, report_to="none",
    )
    trainer = Trainer(
        model=model, args=ta, train_dataset=data["train"], eval_dataset=data["test"], processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
