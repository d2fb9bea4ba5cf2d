import argparse

import numpy as np
import torch
from datasets import load_dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments


class Experiment:
    def __init__(self, name, out):
        self.out = out
        self.tok = AutoTokenizer.from_pretrained(name)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(name, dtype=torch.float32)

    def encode(self, rows):
        enc = self.tok(["correct: " + t for t in rows["wrong"]], truncation=True, max_length=256)
        enc["labels"] = self.tok(text_target=rows["right"], truncation=True, max_length=256)["input_ids"]
        return enc

    def metrics(self, p):
        logits = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
        guess = np.argmax(logits, axis=-1)
        keep = p.label_ids != -100
        per_row = ((guess == p.label_ids) | ~keep).all(axis=1)
        return {
            "token_acc": float((guess[keep] == p.label_ids[keep]).mean()),
            "row_acc": float(per_row.mean()),
        }

    def run(self, data, epochs, lr):
        ds = load_dataset("json", data_files=data, split="train").train_test_split(test_size=0.1, seed=4)
        ds = ds.map(self.encode, batched=True, remove_columns=ds["train"].column_names)
        args = Seq2SeqTrainingArguments(
            output_dir=self.out,
            learning_rate=lr,
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=16,
            warmup_steps=100,
            bf16=True,
            logging_steps=25,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
        )
        trainer = Seq2SeqTrainer(
            model=self.model,
            args=args,
            train_dataset=ds["train"],
            eval_dataset=ds["test"],
            data_collator=DataCollatorForSeq2Seq(self.tok, model=self.model, label_pad_token_id=-100),
            processing_class=self.tok,
            compute_metrics=self.metrics,
        )
        trainer.train()
        trainer.save_model(self.out)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--name", default="google/flan-t5-base")
    ap.add_argument("--data", default="data/grammar.jsonl")
    ap.add_argument("--out", default="out/grammar")
    a = ap.parse_args()
    Experiment(a.name, a.out).run(a.data, epochs=3, lr=5e-5)
