import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)


def build_text(row):
    if row.get("input"):
        return f"### Instruction:\n{row['instruction']}\n\n### Input:\n{row['input']}\n\n### Response:\n{row['output']}"
    return f"### Instruction:\n{row['instruction']}\n\n### Response:\n{row['output']}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.2-3B")
    p.add_argument("--data", default="data/instructions.json")
    p.add_argument("--out", default="out/llama-instruct")
    p.add_argument("--max_len", type=int, default=768)
    args = p.parse_args()

    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="right")
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.print_trainable_parameters()

    ds = load_dataset("json", data_files=args.data, split="train").train_test_split(test_size=0.05, seed=42)
    ds = ds.map(
        lambda row: tokenizer(build_text(row), truncation=True, max_length=args.max_len),
        remove_columns=ds["train"].column_names,
    )
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            warmup_steps=50,
            lr_scheduler_type="cosine",
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
