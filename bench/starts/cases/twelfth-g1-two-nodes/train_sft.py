"""SFT of Qwen2.5-7B on the helpdesk set (prompt/completion, conversational)."""

import argparse
import os
import socket
import time

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--eval_data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--max_length", type=int, default=2048)
    return p.parse_args()


def main():
    args = parse_args()
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"[{socket.gethostname()}] torch {torch.__version__}, {torch.cuda.device_count()} GPUs visible")

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )

    train = load_dataset("json", data_files=args.data, split="train")
    val = load_dataset("json", data_files=args.eval_data, split="train")

    peft_config = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        max_length=args.max_length,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=2,
        dataset_num_proc=8,
        ddp_find_unused_parameters=False,
        seed=42,
        report_to="none",
    )

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=train,
        eval_dataset=val,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    if trainer.is_world_process_zero():
        n = trainer.args.world_size
        print(f"[{socket.gethostname()}] {len(trainer.train_dataset)} rows, {n} processes, "
              f"{config.per_device_train_batch_size * config.gradient_accumulation_steps * n} rows per step")

    start = time.time()
    trainer.train()
    trainer.save_model(args.out)
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(args.out)
        print(f"[{socket.gethostname()}] done in {(time.time() - start) / 3600:.2f} h")


if __name__ == "__main__":
    main()
