"""LoRA fine-tune of Llama-3.1-8B-Instruct on our support chats.

    python train_sft.py --data data/support_train.jsonl --out outputs/support-lora
"""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PAD = "<|finetune_right_pad_id|>"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/support_train.jsonl")
    p.add_argument("--out", default="outputs/support-lora")
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


def main():
    args = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = PAD
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)

    dataset = load_dataset("json", data_files=args.data, split="train")
    dataset = dataset.train_test_split(test_size=0.05, seed=13)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        max_length=1024,
        packing=False,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        seed=13,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"],
        peft_config=peft_config,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
