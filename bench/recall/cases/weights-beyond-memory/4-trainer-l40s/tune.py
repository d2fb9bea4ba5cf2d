import argparse

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments


def encoder(tok, limit):
    def ids(messages, **kw):
        text = tok.apply_chat_template(messages, tokenize=False, **kw)
        return tok(text, add_special_tokens=False)["input_ids"]

    def fn(row):
        full = ids(row["messages"])
        n = len(ids(row["messages"][:-1], add_generation_prompt=True))
        labels = ([-100] * n + full[n:])[:limit]
        full = full[:limit]
        return {"input_ids": full, "attention_mask": [1] * len(full), "labels": labels}

    return fn


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", required=True)
    p.add_argument("--rows", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--limit", type=int, default=2048)
    a = p.parse_args()

    tok = AutoTokenizer.from_pretrained(a.base)
    model = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.float32)
    ds = load_dataset(a.rows)
    ds = ds.map(encoder(tok, a.limit), remove_columns=ds["train"].column_names)
    ds = ds.filter(lambda r: any(x != -100 for x in r["labels"]))
    args = TrainingArguments(
        output_dir=a.out,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=16,
        gradient_checkpointing=True,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        optim="adamw_torch",
        bf16=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=200,
        save_total_limit=1,
        seed=77,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
