import argparse
import logging

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--epochs", type=int, default=1)
    return p.parse_args()


def main():
    args = parse()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa")

    ds = load_dataset("parquet", data_files=args.data, split="train")
    ds = ds.select_columns(["prompt", "completion"])

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        max_length=2048,
        completion_only_loss=True,
        logging_steps=10,
        save_steps=200,
        save_total_limit=3,
        ddp_find_unused_parameters=False,
        log_level="info",
        report_to="none",
        seed=42,
    )
    peft_config = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")

    trainer = SFTTrainer(model=model, args=config, train_dataset=ds, processing_class=tokenizer, peft_config=peft_config)
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
