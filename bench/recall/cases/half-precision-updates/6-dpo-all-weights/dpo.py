"""DPO over every weight of a 1.5B chat model, one H100."""
import argparse

from datasets import load_dataset
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer


def to_pairs(row):
    question = [{"role": "user", "content": row["question"]}]
    return {
        "prompt": question,
        "chosen": [{"role": "assistant", "content": row["better"]}],
        "rejected": [{"role": "assistant", "content": row["worse"]}],
    }


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sft_model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--pairs", default="pairs.jsonl")
    p.add_argument("--out", default="dpo-out")
    return p.parse_args()


def main():
    args = get_args()
    tokenizer = AutoTokenizer.from_pretrained(args.sft_model)
    rows = load_dataset("json", data_files=args.pairs, split="train")
    rows = rows.map(to_pairs, remove_columns=rows.column_names)
    parts = rows.train_test_split(test_size=0.05, seed=1)

    config = DPOConfig(
        output_dir=args.out,
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "sdpa"},
        beta=0.1,
        learning_rate=5e-7,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        optim="adamw_torch_fused",
        eval_strategy="steps",
        eval_steps=100,
        logging_steps=10,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=args.sft_model,
        args=config,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
