"""Second round of the support assistant: go on from the adapter of last month."""
import argparse

import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--adapter", default="runs/support-2026-10")
    p.add_argument("--train", default="data/support_november.jsonl")
    p.add_argument("--out", default="runs/support-2026-11")
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


def to_pair(row):
    return {
        "prompt": [{"role": "user", "content": row["ticket"]}],
        "completion": [{"role": "assistant", "content": row["reply"]}],
    }


def main():
    args = parse_args()
    set_seed(13)
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    base = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(base, args.adapter)

    rows = load_dataset("json", data_files=args.train, split="train")
    rows = rows.map(to_pair, remove_columns=rows.column_names)
    parts = rows.train_test_split(test_size=0.05, seed=13)

    config = SFTConfig(
        output_dir=args.out,
        learning_rate=args.lr,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        max_length=2048,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=10,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
