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

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def build(row, tok):
    text = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(text, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def pick(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(eval_pred):
    predictions, labels = eval_pred
    kept = labels != -100
    hits = (predictions == labels) & kept
    return {"token_accuracy": float(hits.sum() / kept.sum())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default="runs/gsm8k")
    args = ap.parse_args()
    set_seed(0)
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(build, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            warmup_steps=40,
            lr_scheduler_type="cosine",
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=20,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=pick,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(args.out + "/adapter")


if __name__ == "__main__":
    main()
