"""Second SFT round on the newly labelled support tickets."""
import argparse

import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--adapter", default="runs/round1/final")
    p.add_argument("--data", default="data/tickets_march.jsonl")
    p.add_argument("--out", default="runs/round2")
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--epochs", type=float, default=2)
    return p.parse_args()


def to_prompt_completion(row):
    return {
        "prompt": [
            {"role": "system", "content": "You answer customer tickets politely and briefly."},
            {"role": "user", "content": row["ticket"]},
        ],
        "completion": [{"role": "assistant", "content": row["reply"]}],
    }


def main():
    args = parse_args()
    set_seed(17)

    tokenizer = AutoTokenizer.from_pretrained(args.base)
    base = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(base, args.adapter)

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(to_prompt_completion, remove_columns=ds.column_names)
    ds = ds.train_test_split(test_size=0.05, seed=17)

    cfg = SFTConfig(
        output_dir=args.out,
        learning_rate=args.lr,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(f"{args.out}/final")
    tokenizer.save_pretrained(f"{args.out}/final")


if __name__ == "__main__":
    main()
