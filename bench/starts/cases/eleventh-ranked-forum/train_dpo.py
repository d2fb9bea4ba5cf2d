import argparse
import json

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="mistralai/Mistral-7B-Instruct-v0.3")
    p.add_argument("--data", default="ranked.jsonl")
    p.add_argument("--out", default="out-dpo")
    p.add_argument("--lr", type=float, default=5e-6)
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--epochs", type=float, default=2)
    return p.parse_args()


def to_pair(row):
    answers = sorted(row["answers"], key=lambda a: a["rank"], reverse=True)
    best, worst = answers[0], answers[-1]
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "chosen": [{"role": "assistant", "content": best["text"]}],
        "rejected": [{"role": "assistant", "content": worst["text"]}],
    }


def load_pairs(path):
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.strip()]
    pairs = [to_pair(r) for r in rows if len(r["answers"]) > 1]
    return Dataset.from_list(pairs).train_test_split(test_size=0.1, seed=7)


def main():
    args = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    data = load_pairs(args.data)

    trainer = DPOTrainer(
        model=model,
        args=DPOConfig(
            output_dir=args.out,
            beta=args.beta,
            learning_rate=args.lr,
            lr_scheduler_type="cosine",
            warmup_ratio=0.1,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=1024,
            bf16=True,
            logging_steps=2,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
