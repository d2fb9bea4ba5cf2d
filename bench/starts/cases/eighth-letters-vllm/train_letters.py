"""LoRA on Qwen2.5-7B-Instruct: turn bullet notes from case workers into a letter to the tenant.

    python train_letters.py --data data/letters_train.jsonl --out runs/letters-v3
"""
import argparse

from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
SYSTEM = "You write letters for the housing office. Polite, short sentences, no legal advice."


def to_messages(row):
    notes = "\n".join(f"- {n.strip()}" for n in row["notes"].split(";") if n.strip())
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"Recipient: {row['recipient']}\nNotes:\n{notes}"},
        ],
        "completion": [{"role": "assistant", "content": row["letter"].strip()}],
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="data/letters_train.jsonl")
    ap.add_argument("--out", default="runs/letters-v3")
    args = ap.parse_args()

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(to_messages, remove_columns=ds.column_names)
    split = ds.train_test_split(test_size=0.05, seed=7)

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        max_length=2048,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "sdpa"},
    )
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    trainer = SFTTrainer(
        model=BASE,
        args=config,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model(args.out)
    trainer.processing_class.save_pretrained(args.out)


if __name__ == "__main__":
    main()
