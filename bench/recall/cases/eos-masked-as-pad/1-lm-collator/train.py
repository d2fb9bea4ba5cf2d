import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

TEMPLATE = "### Instruction:\n{instruction}\n\n### Response:\n{output}"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="meta-llama/Llama-3.2-3B")
    ap.add_argument("--data", default="data/instructions.jsonl")
    ap.add_argument("--out", default="out/instruct")
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="right")
    tokenizer.pad_token = tokenizer.eos_token

    def tokenize(row):
        text = TEMPLATE.format(**row) + tokenizer.eos_token
        return tokenizer(text, truncation=True, max_length=1024)

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(tokenize, remove_columns=ds.column_names)
    ds = ds.train_test_split(test_size=0.05, seed=0)

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            learning_rate=2e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
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
