#!/usr/bin/env python
"""LoRA fine-tune of Qwen2.5-3B with the transformers Trainer, token accuracy in every evaluation."""
import argparse

import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B")
    p.add_argument("--train", default="data/train.jsonl")
    p.add_argument("--valid", default="data/valid.jsonl")
    p.add_argument("--out", default="outputs/recipes")
    p.add_argument("--max-length", type=int, default=1024)
    return p.parse_args()


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    predictions = np.argmax(logits, axis=-1)
    predictions, labels = predictions[:, :-1], labels[:, 1:]
    mask = labels != -100
    return {"token_accuracy": float((predictions[mask] == labels[mask]).mean())}


def main():
    args = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.enable_input_require_grads()
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.print_trainable_parameters()

    def tokenize(batch):
        out = tokenizer([t + tokenizer.eos_token for t in batch["text"]], truncation=True, max_length=args.max_length)
        out["labels"] = [list(ids) for ids in out["input_ids"]]
        return out

    data = load_dataset("json", data_files={"train": args.train, "valid": args.valid})
    data = data.map(tokenize, batched=True, remove_columns=["text"])

    training_args = TrainingArguments(
        output_dir=args.out,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=8,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="steps",
        save_steps=20,
        save_total_limit=2,
        report_to="none",
        seed=11,
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=data["train"],
        eval_dataset=data["valid"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding="longest", label_pad_token_id=-100),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
