from dataclasses import dataclass, field

import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, EarlyStoppingCallback,
                          HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments)


@dataclass
class Job:
    model: str = "google/flan-t5-base"
    train: str = "data/train.jsonl"
    val: str = "data/val.jsonl"
    test: str = "data/test.jsonl"
    max_in: int = 768
    max_out: int = 128
    out: str = "out"


def training_args(job, **kw):
    base = dict(
        output_dir=job.out,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=1e-4,
        num_train_epochs=6,
        warmup_ratio=0.03,
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=100,
        save_steps=100,
        logging_steps=50,
        save_total_limit=2,
        predict_with_generate=True,
        generation_max_length=job.max_out,
        load_best_model_at_end=True,
        metric_for_best_model="rougeL",
        greater_is_better=False,
        bf16=True,
        report_to="none",
    )
    base.update(kw)
    return Seq2SeqTrainingArguments(**base)


def main():
    (job,) = HfArgumentParser(Job).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained(job.model)
    model = AutoModelForSeq2SeqLM.from_pretrained(job.model)
    ds = load_dataset("json", data_files={"train": job.train, "val": job.val, "test": job.test})

    def encode(b):
        x = tok(["summarize: " + d for d in b["dialogue"]], max_length=job.max_in, truncation=True)
        x["labels"] = tok(text_target=b["summary"], max_length=job.max_out, truncation=True)["input_ids"]
        return x

    ds = ds.map(encode, batched=True, remove_columns=ds["train"].column_names)
    rouge = evaluate.load("rouge")

    def metrics(p):
        pred = np.where(p.predictions < 0, tok.pad_token_id, p.predictions)
        gold = np.where(p.label_ids < 0, tok.pad_token_id, p.label_ids)
        r = rouge.compute(predictions=tok.batch_decode(pred, skip_special_tokens=True),
                          references=tok.batch_decode(gold, skip_special_tokens=True), use_stemmer=True)
        return {k: round(float(v), 4) for k, v in r.items()}

    trainer = Seq2SeqTrainer(
        model=model, args=training_args(job), train_dataset=ds["train"], eval_dataset=ds["val"],
        processing_class=tok, data_collator=DataCollatorForSeq2Seq(tok, model=model), compute_metrics=metrics)
    trainer.train()
    trainer.save_model(f"{job.out}/best")
    print(trainer.evaluate(ds["test"], metric_key_prefix="test"))


if __name__ == "__main__":
    main()
