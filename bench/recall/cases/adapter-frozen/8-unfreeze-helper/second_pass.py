import argparse

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from adapters import restore_adapter


def rows(r):
    return {
        "prompt": [{"role": "user", "content": r["instruction"]}],
        "completion": [{"role": "assistant", "content": r["response"]}],
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--adapter", default="runs/pass1")
    p.add_argument("--out", default="runs/pass2")
    a = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(a.base)
    base = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16)
    model = restore_adapter(base, a.adapter)

    ds = load_dataset("json", data_files="data/pass2.jsonl", split="train")
    ds = ds.map(rows, remove_columns=ds.column_names)

    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=a.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            max_length=1024,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(a.out)
    tokenizer.save_pretrained(a.out)


if __name__ == "__main__":
    main()
