import evaluate
import numpy as np
import torch
from datasets import load_dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

NAME = "google/flan-t5-base"
tok = AutoTokenizer.from_pretrained(NAME)
rouge = evaluate.load("rouge")


def encode(rows):
    enc = tok(["summarize: " + d for d in rows["dialogue"]], truncation=True, max_length=512)
    enc["labels"] = tok(text_target=rows["summary"], truncation=True, max_length=128)["input_ids"]
    return enc


def compute_metrics(pred):
    guesses, labels = pred
    guesses = np.where(guesses != -100, guesses, tok.pad_token_id)
    labels = np.where(labels != -100, labels, tok.pad_token_id)
    scores = rouge.compute(
        predictions=tok.batch_decode(guesses, skip_special_tokens=True),
        references=tok.batch_decode(labels, skip_special_tokens=True),
    )
    return {k: round(float(v), 4) for k, v in scores.items()}


def main():
    model = AutoModelForSeq2SeqLM.from_pretrained(NAME, dtype=torch.float32)
    ds = load_dataset("json", data_files={"train": "data/train.jsonl", "validation": "data/dev.jsonl"})
    ds = ds.map(encode, batched=True, remove_columns=ds["train"].column_names)
    args = Seq2SeqTrainingArguments(
        output_dir="out/t5",
        learning_rate=5e-5,
        num_train_epochs=3,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        predict_with_generate=True,
        generation_max_length=128,
        warmup_steps=100,
        bf16=True,
        logging_steps=25,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        data_collator=DataCollatorForSeq2Seq(tok, model=model, label_pad_token_id=-100),
        processing_class=tok,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    trainer.save_model("out/t5")


if __name__ == "__main__":
    main()
