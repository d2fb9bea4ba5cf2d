# SFT of Qwen2.5-14B-Instruct on our helpdesk conversations, LoRA, 4 x RTX A6000
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-14B-Instruct"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/helpdesk.jsonl")
    p.add_argument("--out", default="out/helpdesk-14b-lora")
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--max-length", type=int, default=2048)
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(7)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(
        MODEL,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map="auto",  # use all 4 GPUs
    )

    rows = load_dataset("json", data_files=args.data, split="train")
    rows = rows.train_test_split(test_size=0.03, seed=7)

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
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=25,
        max_length=args.max_length,
        assistant_only_loss=True,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        report_to="none",
        seed=7,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    print(f"{torch.cuda.device_count()} GPUs visible")
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
