import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, EarlyStoppingCallback
from trl import SFTConfig, SFTTrainer


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def training_config(out):
    return SFTConfig(
        output_dir=out,
        learning_rate=1e-4,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        warmup_steps=30,
        lr_scheduler_type="cosine",
        max_length=1024,
        bf16=True,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=3,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=True,
        logging_steps=20,
        report_to="none",
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--out", default="runs/gsm8k")
    args = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(args.base)
    train = load_dataset("openai/gsm8k", "main", split="train")
    parts = train.map(shape, remove_columns=train.column_names).train_test_split(test_size=0.05, seed=10)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16),
        args=training_config(args.out),
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=4)],
    )
    trainer.train()
    trainer.save_model(args.out + "/best")


if __name__ == "__main__":
    main()
