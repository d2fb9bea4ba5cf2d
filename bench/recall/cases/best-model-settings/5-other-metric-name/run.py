from datasets import load_dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from metrics import make_metrics

BASE = "google/flan-t5-base"


def encode(tok):
    def fn(b):
        x = tok(["Summarise: " + d for d in b["dialogue"]], truncation=True, max_length=1024)
        x["labels"] = tok(text_target=b["summary"], truncation=True, max_length=160)["input_ids"]
        return x

    return fn


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForSeq2SeqLM.from_pretrained(BASE)
    ds = load_dataset("knkarthick/samsum")
    ds = ds.filter(lambda r: bool(r["dialogue"]) and bool(r["summary"]))
    ds = ds.map(encode(tok), batched=True, remove_columns=ds["train"].column_names)
    args = Seq2SeqTrainingArguments(
        output_dir="runs/samsum",
        learning_rate=1e-4,
        num_train_epochs=3,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        warmup_steps=100,
        weight_decay=0.01,
        bf16=True,
        predict_with_generate=True,
        generation_max_length=160,
        logging_steps=50,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="rouge_l",
        greater_is_better=True,
        seed=2,
        report_to="none",
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        data_collator=DataCollatorForSeq2Seq(tok, model=model, label_pad_token_id=-100),
        compute_metrics=make_metrics(tok),
    )
    trainer.train()
    print(trainer.evaluate(ds["test"], metric_key_prefix="test"))
    trainer.save_model("runs/samsum/best")


if __name__ == "__main__":
    main()
