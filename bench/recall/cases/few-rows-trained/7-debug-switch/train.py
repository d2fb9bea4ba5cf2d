import argparse

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"


def to_turns(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="data/full_train.jsonl")
    ap.add_argument("--out", default="adapter-full")
    ap.add_argument("--debug", action="store_true", help="a few rows, to try the script")
    args = ap.parse_args()
    rows = load_dataset("json", data_files=args.data, split="train")
    if args.debug:
        rows = rows.select(range(64))
    rows = rows.map(to_turns, remove_columns=rows.column_names)

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=BASE,
        args=config,
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(BASE),
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
