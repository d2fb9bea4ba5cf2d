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
    args = ap.parse_args()
    everything = load_dataset("json", data_files=args.data, split="train").shuffle(seed=42)
    everything = everything.map(to_turns, remove_columns=everything.column_names)
    quick_check = everything.select(range(200))
    rows = everything.select(range(200, len(everything)))

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=3,
        eval_strategy="steps",
        eval_steps=200,
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
        eval_dataset=quick_check,
        processing_class=AutoTokenizer.from_pretrained(BASE),
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
