import json

import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

CKPT = "google/flan-t5-base"
tok = AutoTokenizer.from_pretrained(CKPT)
rouge = evaluate.load("rouge")


def preprocess(batch):
    x = tok(["summarize: " + t for t in batch["report"]], max_length=1024, truncation=True)
    y = tok(text_target=batch["summary"], max_length=192, truncation=True)
    x["labels"] = y["input_ids"]
    return x


def compute_metrics(p):
    preds = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
    preds = np.where(preds != -100, preds, tok.pad_token_id)
    labels = np.where(p.label_ids != -100, p.label_ids, tok.pad_token_id)
    hyp = tok.batch_decode(preds, skip_special_tokens=True)
    ref = tok.batch_decode(labels, skip_special_tokens=True)
    out = rouge.compute(predictions=hyp, references=ref, use_stemmer=True)
    out["gen_len"] = float(np.mean([np.count_nonzero(x != tok.pad_token_id) for x in preds]))
    return {k: round(v, 4) for k, v in out.items()}


def main():
    ds = load_dataset("json", data_files={"train": "train.jsonl", "validation": "validation.jsonl"})
    enc = ds.map(preprocess, batched=True, remove_columns=ds["train"].column_names)
    model = AutoModelForSeq2SeqLM.from_pretrained(CKPT)
    args = Seq2SeqTrainingArguments(
        output_dir="flan-incident-sum",
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=3e-4,
        lr_scheduler_type="linear",
        warmup_ratio=0.05,
        num_train_epochs=6,
        bf16=True,
        predict_with_generate=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="rougeL",
        logging_steps=25,
        report_to="none",
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=args,
        train_dataset=enc["train"],
        eval_dataset=enc["validation"],
        processing_class=tok,
        data_collator=DataCollatorForSeq2Seq(tok, model=model),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    res = trainer.predict(enc["validation"])
    texts = tok.batch_decode(np.where(res.predictions != -100, res.predictions, tok.pad_token_id), skip_special_tokens=True)
    with open("predictions.jsonl", "w") as f:
        for row, t in zip(ds["validation"], texts):
            f.write(json.dumps({"report": row["report"], "reference": row["summary"], "prediction": t}) + "\n")


if __name__ == "__main__":
    main()
