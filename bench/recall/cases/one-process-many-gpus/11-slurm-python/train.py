import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--batch-size", type=int, default=2)
    p.add_argument("--data", default="data/legal.jsonl")
    a = p.parse_args()

    tok = AutoTokenizer.from_pretrained(a.base)
    rows = load_dataset("json", data_files=a.data, split="train")
    rows = rows.map(shape, remove_columns=rows.column_names).train_test_split(test_size=0.05, seed=8)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16),
        args=SFTConfig(
            output_dir=a.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=a.batch_size,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=4096,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(a.out + "/adapter")


if __name__ == "__main__":
    main()
