import torch
from datasets import load_dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

NAME = "google/flan-t5-base"
tok = AutoTokenizer.from_pretrained(NAME)


def encode(rows):
    enc = tok(["correct: " + t for t in rows["wrong"]], truncation=True, max_length=256)
    enc["labels"] = tok(text_target=rows["right"], truncation=True, max_length=256)["input_ids"]
    return enc


def top(logits, labels):
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)


def metrics(pred):
    guess, gold = pred.predictions, pred.label_ids
    keep = gold != -100
    return {"token_accuracy": float((guess[keep] == gold[keep]).mean())}


def main():
    model = AutoModelForSeq2SeqLM.from_pretrained(NAME, dtype=torch.float32)
    ds = load_dataset("json", data_files="data/grammar.jsonl", split="train").train_test_split(test_size=0.1, seed=4)
    ds = ds.map(encode, batched=True, remove_columns=ds["train"].column_names)
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir="out/grammar",
            learning_rate=5e-5,
            num_train_epochs=3,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=16,
            warmup_steps=100,
            bf16=True,
            logging_steps=25,
            eval_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, model=model, label_pad_token_id=-100),
        processing_class=tok,
        compute_metrics=metrics,
        preprocess_logits_for_metrics=top,
    )
    trainer.train()
    trainer.save_model("out/grammar")


if __name__ == "__main__":
    main()
