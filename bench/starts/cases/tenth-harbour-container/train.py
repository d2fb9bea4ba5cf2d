"""SFT of Mistral-7B-Instruct on the harbour master's radio log answers."""
import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

BASE = "mistralai/Mistral-7B-Instruct-v0.3"


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--output_dir", required=True)
    p.add_argument("--data", default="data/radio_answers.jsonl")
    p.add_argument("--epochs", type=float, default=2)
    return p.parse_args()


def main():
    args = arguments()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)

    rows = load_dataset("json", data_files=args.data, split="train")
    rows = rows.train_test_split(test_size=0.05, seed=11)

    config = SFTConfig(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        max_length=2048,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=200,
        report_to="none",
        model_init_kwargs={"dtype": torch.bfloat16},
    )
    peft_config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")

    trainer = SFTTrainer(
        model=BASE,
        args=config,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
