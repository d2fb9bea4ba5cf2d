import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

ASK = "Summarise the inspection report in one or two sentences.\n\n"


def shape(row):
    return {
        "prompt": [{"role": "user", "content": ASK + row["report"]}],
        "completion": [{"role": "assistant", "content": row["summary"]}],
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--data", default="reports.jsonl")
    p.add_argument("--out", default="runs/inspections")
    a = p.parse_args()
    tok = AutoTokenizer.from_pretrained(a.base)
    rows = load_dataset("json", data_files=a.data, split="train")
    rows = rows.map(shape, remove_columns=rows.column_names)
    config = SFTConfig(
        output_dir=a.out,
        learning_rate=1e-4,
        num_train_epochs=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_length=256,
        bf16=True,
        logging_steps=2,
        save_strategy="epoch",
        report_to="none",
        seed=31,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16),
        args=config,
        train_dataset=rows,
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(a.out + "/adapter")


if __name__ == "__main__":
    main()
