#!/usr/bin/env python
"""Fine-tune only the top blocks, keep the rest as it is."""
import os

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = os.environ.get("MODEL", "Qwen/Qwen2.5-7B-Instruct")
TRAINABLE = ("model.layers.28.", "model.layers.29.", "model.layers.30.", "model.layers.31.", "model.norm.")


def freeze(model):
    for name, param in model.named_parameters():
        param.requires_grad = name.startswith(TRAINABLE)
    n_train = sum(p.numel() for p in model.parameters() if p.requires_grad)
    n_all = sum(p.numel() for p in model.parameters())
    print(f"trainable params: {n_train:,} || all params: {n_all:,} || trainable%: {100 * n_train / n_all:.4f}")


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
    freeze(model)

    dataset = load_dataset("json", data_files="data/replies.jsonl", split="train")

    config = SFTConfig(
        output_dir="runs/last-layers",
        num_train_epochs=6,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=2e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        max_length=1024,
        bf16=True,
        gradient_checkpointing=False,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        seed=3,
    )
    trainer = SFTTrainer(model=model, args=config, train_dataset=dataset, processing_class=tokenizer)
    trainer.train()
    trainer.save_model("runs/last-layers/final")


if __name__ == "__main__":
    main()
