import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

BASE = "Qwen/Qwen2.5-3B-Instruct"
SYSTEM = "You are the assistant of a city library."


def encode(row, tok):
    chat = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": row["question"]},
        {"role": "assistant", "content": row["answer"]},
    ]
    text = tok.apply_chat_template(chat, tokenize=False)
    enc = tok(text, add_special_tokens=False)
    enc["labels"] = list(enc["input_ids"])
    return enc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="library.jsonl")
    ap.add_argument("--out", default="runs/library")
    args = ap.parse_args()
    set_seed(40)
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("json", data_files=args.data, split="train").train_test_split(test_size=0.05, seed=40)
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 2048)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            warmup_steps=20,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(args.out + "/adapter")


if __name__ == "__main__":
    main()
