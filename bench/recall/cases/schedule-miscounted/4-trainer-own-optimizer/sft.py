import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments,
    get_cosine_schedule_with_warmup,
)


def tokenize_row(row, tokenizer, max_length):
    messages = row["messages"]
    full = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    ids = tokenizer(full, add_special_tokens=False, truncation=True, max_length=max_length)["input_ids"]
    n = min(len(tokenizer(prompt, add_special_tokens=False)["input_ids"]), len(ids))
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * n + ids[n:]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen3-4B-Instruct-2507")
    ap.add_argument("--rows", default="rows.jsonl")
    ap.add_argument("--out", default="adapter")
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.base)
    base = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16)
    model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    rows = load_dataset("json", data_files=args.rows, split="train")
    rows = rows.map(tokenize_row, fn_kwargs=dict(tokenizer=tokenizer, max_length=2048), remove_columns=rows.column_names)

    ta = TrainingArguments(
        output_dir=args.out,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=16,
        bf16=True,
        logging_steps=5,
        save_strategy="epoch",
        report_to="none",
    )
    slow, fast = [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            (fast if "lora_B" in name else slow).append(p)
    optimizer = torch.optim.AdamW([{"params": slow, "lr": 1e-4}, {"params": fast, "lr": 2e-4}], weight_decay=0.0)
    steps = len(rows) // ta.per_device_train_batch_size * int(ta.num_train_epochs)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * steps), steps)

    trainer = Trainer(
        model=model, args=ta, train_dataset=rows, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        optimizers=(optimizer, scheduler),
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
