import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B-Instruct")
    p.add_argument("--train_file", default="/scratch/jlind/medqa/train.jsonl")
    p.add_argument("--eval_file", default="/scratch/jlind/medqa/dev.jsonl")
    p.add_argument("--out", default="/scratch/jlind/runs/medqa-l31-8b")
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--ga", type=int, default=4)
    p.add_argument("--max_len", type=int, default=2048)
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(13)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map="auto",
    )
    model.config.use_cache = False

    data = load_dataset("json", data_files={"train": args.train_file, "dev": args.eval_file})
    print(data)

    peft_config = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    cfg = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.bs,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=args.ga,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        max_length=args.max_len,
        completion_only_loss=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=500,
        save_steps=500,
        save_total_limit=2,
        dataloader_num_workers=4,
        report_to="none",
        seed=13,
    )

    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(os.path.join(args.out, "final"))
    tokenizer.save_pretrained(os.path.join(args.out, "final"))


if __name__ == "__main__":
    main()
