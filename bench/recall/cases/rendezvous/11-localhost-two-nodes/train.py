import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-14B-Instruct"


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    args = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("json", data_files="data/manuals.jsonl", split="train")
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        args=SFTConfig(
            output_dir=args.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=1,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            warmup_steps=20,
            max_length=4096,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows.map(shape, remove_columns=rows.column_names),
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(args.out + "/adapter")


if __name__ == "__main__":
    main()
