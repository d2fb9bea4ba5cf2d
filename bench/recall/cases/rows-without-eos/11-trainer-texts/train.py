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

FORM = "### Review:\n{review}\n\n### Reply:\n{reply}"


def tokenize(row, tok):
    text = FORM.format(review=row["review"], reply=row["reply"])
    head = FORM.format(review=row["review"], reply="")
    ids = tok(text)["input_ids"]
    n = len(tok(head)["input_ids"])
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * n + ids[n:]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-1.5B")
    ap.add_argument("--data", default="replies.jsonl")
    ap.add_argument("--out", default="runs/replies")
    args = ap.parse_args()
    set_seed(9)
    tok = AutoTokenizer.from_pretrained(args.base)
    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(tokenize, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 1024).train_test_split(test_size=0.05, seed=9)
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            learning_rate=1e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            warmup_steps=20,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    model.save_pretrained(args.out + "/adapter")
    tok.save_pretrained(args.out + "/adapter")


if __name__ == "__main__":
    main()
