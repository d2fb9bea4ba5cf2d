"""Second stage: DPO on execution feedback (chosen = query that ran and was right), on top of our SFT adapter."""
import argparse

import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "codellama/CodeLlama-7b-Instruct-hf"
SFT_ADAPTER = "runs/sql-sft/final"


def to_pair(row):
    schema = "\n".join(row["tables"])
    return {
        "prompt": [{"role": "user", "content": f"{schema}\n\nWrite one SQL query: {row['question']}"}],
        "chosen": [{"role": "assistant", "content": row["good_sql"].strip()}],
        "rejected": [{"role": "assistant", "content": row["bad_sql"].strip()}],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", default="data/sql_pairs.jsonl")
    parser.add_argument("--out", default="runs/sql-dpo")
    cli = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(SFT_ADAPTER)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")
    model = PeftModel.from_pretrained(model, SFT_ADAPTER)

    data = load_dataset("json", data_files=cli.pairs, split="train")
    data = data.filter(lambda r: r["good_sql"].strip() != r["bad_sql"].strip())
    data = data.map(to_pair, remove_columns=data.column_names).train_test_split(test_size=240, seed=1)

    config = DPOConfig(
        output_dir=cli.out,
        beta=0.1,
        learning_rate=5e-6,
        lr_scheduler_type="cosine",
        warmup_steps=31,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        bf16=True,
        max_length=2048,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=150,
        save_steps=150,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(cli.out + "/final")


if __name__ == "__main__":
    main()
