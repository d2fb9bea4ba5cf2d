"""SFT on the handbook QA set. python train.py 2>&1 | tee train.log"""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B")
    p.add_argument("--data", default="handbook_qa.jsonl")
    p.add_argument("--out", default="runs/handbook")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


PROMPT = """You are the assistant of the operations department. Use the handbook section below to answer the question.

### Handbook
{section}

### Question
{question}

### Answer
{answer}"""


def format_row(row):
    return PROMPT.format(section=row["section"], question=row["question"], answer=row["answer"])


def main():
    a = parse_args()
    set_seed(42)

    tokenizer = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, torch_dtype=torch.bfloat16, attn_implementation="sdpa")

    ds = load_dataset("json", data_files=a.data, split="train").shuffle(seed=42)

    cfg = SFTConfig(
        output_dir=a.out,
        num_train_epochs=a.epochs,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        logging_steps=2,
        save_strategy="epoch",
        report_to="none",
        seed=42,
    )
    lora = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds,
        formatting_func=format_row,
        processing_class=tokenizer,
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
