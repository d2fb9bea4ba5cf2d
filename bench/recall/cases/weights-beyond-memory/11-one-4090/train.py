import argparse

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "meta-llama/Llama-3.1-8B"


def shape(row):
    return {"prompt": f"Article:\n{row['article']}\n\nHeadline:", "completion": " " + row["headline"]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="headlines.jsonl")
    ap.add_argument("--out", default="runs/headlines")
    args = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = "<|finetune_right_pad_id|>"
    rows = load_dataset("json", data_files=args.data, split="train")
    rows = rows.map(shape, remove_columns=rows.column_names).train_test_split(test_size=0.03, seed=2)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=args.out,
            learning_rate=1e-5,
            num_train_epochs=1,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=16,
            gradient_checkpointing=True,
            optim="adamw_torch_fused",
            lr_scheduler_type="cosine",
            warmup_steps=20,
            max_length=2048,
            bf16=True,
            eval_strategy="epoch",
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(args.out + "/final")


if __name__ == "__main__":
    main()
