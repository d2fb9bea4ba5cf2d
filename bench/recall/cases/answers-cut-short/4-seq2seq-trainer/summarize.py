import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments,
)

BASE = "google/flan-t5-base"
rouge = evaluate.load("rouge")


def preprocess(batch, tokenizer):
    enc = tokenizer(["summarize: " + t for t in batch["article"]], max_length=1024, truncation=True)
    enc["labels"] = tokenizer(text_target=batch["summary"], max_length=256, truncation=True)["input_ids"]
    return enc


def build_metric(tokenizer):
    def metric(pred):
        preds = np.where(pred.predictions < 0, tokenizer.pad_token_id, pred.predictions)
        labels = np.where(pred.label_ids < 0, tokenizer.pad_token_id, pred.label_ids)
        hyp = tokenizer.batch_decode(preds, skip_special_tokens=True)
        ref = tokenizer.batch_decode(labels, skip_special_tokens=True)
        return rouge.compute(predictions=hyp, references=ref, use_stemmer=True)

    return metric


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForSeq2SeqLM.from_pretrained(BASE, dtype="float32")
    data = load_dataset("json", data_files={"train": "news_train.jsonl", "test": "news_test.jsonl"})
    data = data.map(preprocess, batched=True, fn_kwargs={"tokenizer": tokenizer}, remove_columns=data["train"].column_names)
    args = Seq2SeqTrainingArguments(
        output_dir="news-t5", num_train_epochs=3, per_device_train_batch_size=8, per_device_eval_batch_size=16,
        learning_rate=1e-4, warmup_steps=0.03, bf16=True, eval_strategy="epoch", save_strategy="epoch",
        load_best_model_at_end=True, metric_for_best_model="rougeL", greater_is_better=True,
        predict_with_generate=True, logging_steps=50, report_to="none",
    )
    trainer = Seq2SeqTrainer(
        model=model, args=args, train_dataset=data["train"], eval_dataset=data["test"], processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), compute_metrics=build_metric(tokenizer),
    )
    trainer.train()
    trainer.save_model("news-t5/final")


if __name__ == "__main__":
    main()
