import argparse
import math

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--warmup", type=int, default=500)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--out", default="runs/robots")
    return p.parse_args()


def main():
    a = parse()
    ramp = min(a.warmup, math.ceil(0.05 * a.steps))
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    ds = load_dataset("HuggingFaceH4/no_robots")

    def split(row):
        return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}

    drop = ds["train"].column_names
    ds = ds.map(split, remove_columns=drop)
    args = SFTConfig(
        output_dir=a.out,
        max_steps=a.steps,
        warmup_steps=ramp,
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        seed=5,
        report_to="none",
    )
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
