import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = os.environ.get("BASE", "Qwen/Qwen2.5-7B-Instruct")
OUT = "adapters/sql"

SYSTEM = "You write one PostgreSQL query for the question. Answer with SQL only."


def to_chat(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{row['schema']}\n\n{row['question']}"},
        ],
        "completion": [{"role": "assistant", "content": row["sql"]}],
    }


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")

    ds = load_dataset("parquet", data_files="s3://dwh-ml/sql/train-*.parquet", split="train")
    ds = ds.map(to_chat, remove_columns=ds.column_names)
    split = ds.train_test_split(test_size=0.02, seed=7)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    args = SFTConfig(
        output_dir=OUT,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(OUT)


if __name__ == "__main__":
    main()
