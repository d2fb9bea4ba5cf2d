"""Fine-tune Qwen2.5-7B-Instruct to write CRM notes from call transcripts.

    python train_notes.py --data data/calls.jsonl --out out/notes-v3
"""
import argparse
import random

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-7B-Instruct"


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="data/calls.jsonl")
    ap.add_argument("--out", default="out/notes-v3")
    ap.add_argument("--epochs", type=float, default=3)
    ap.add_argument("--lr", type=float, default=2e-4)
    return ap.parse_args()


def main():
    args = parse()
    random.seed(11)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.remove_columns(["call_id"]).shuffle(seed=11)
    parts = ds.train_test_split(test_size=0.1, seed=11)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        seed=11,
        report_to="none",
        model_init_kwargs={"dtype": "bfloat16"},
    )

    trainer = SFTTrainer(
        model=MODEL,
        args=config,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
