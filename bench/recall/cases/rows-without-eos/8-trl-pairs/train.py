import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def pair(row):
    return {
        "prompt": f"### Instruction:\n{row['instruction']}\n\n### Response:\n",
        "completion": row["output"].strip(),
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--data", default="data/instructions.json")
    ap.add_argument("--out", default="out/qwen-instruct")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)
    ds = load_dataset("json", data_files=a.data, split="train").train_test_split(test_size=0.05, seed=42)
    ds = ds.map(pair, remove_columns=ds["train"].column_names)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16),
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=SFTConfig(
            output_dir=a.out,
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            warmup_steps=50,
            lr_scheduler_type="cosine",
            bf16=True,
            max_length=1024,
            completion_only_loss=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
            seed=42,
        ),
    )
    trainer.train()
    trainer.save_model(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
