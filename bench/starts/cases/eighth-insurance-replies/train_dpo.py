"""Second round: DPO on replies that our clerks ranked (SFT was merged into base/claims-sft)."""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "base/claims-sft"


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", default="data/ranked_replies.jsonl")
    p.add_argument("--out", default="runs/claims-dpo")
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def main():
    cli = arguments()
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    pairs = load_dataset("json", data_files=cli.pairs, split="train")  # prompt, chosen, rejected: lists of messages

    config = DPOConfig(
        output_dir=cli.out,
        beta=0.1,
        learning_rate=2e-5,
        lr_scheduler_type="linear",
        warmup_steps=1000,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        max_length=1536,
        bf16=True,
        logging_steps=5,
        save_strategy="epoch",
        seed=cli.seed,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        args=config,
        train_dataset=pairs,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", lora_dropout=0.05, task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(cli.out)
    trainer.save_state()


if __name__ == "__main__":
    main()
