"""Fine-tune Qwen2.5-3B-Instruct on claim letters. Reports token accuracy on the dev rows."""
import os

import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

MODEL = os.environ.get("MODEL", "Qwen/Qwen2.5-3B-Instruct")
MAX_LEN = 768


def build_dataset(tokenizer):
    def encode(example):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": example["claim"]}], tokenize=False, add_generation_prompt=True
        )
        prompt_ids = tokenizer(prompt, add_special_tokens=False).input_ids
        answer_ids = tokenizer(example["letter"] + "<|im_end|>\n", add_special_tokens=False).input_ids
        input_ids = (prompt_ids + answer_ids)[:MAX_LEN]
        labels = ([-100] * len(prompt_ids) + answer_ids)[:MAX_LEN]
        return {"input_ids": input_ids, "attention_mask": [1] * len(input_ids), "labels": labels}

    ds = load_dataset("json", data_files={"train": "data/claims_train.jsonl", "dev": "data/claims_dev.jsonl"})
    return ds.map(encode, remove_columns=["claim", "letter"])


def preprocess_logits_for_metrics(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(eval_preds):
    preds, labels = eval_preds
    mask = labels != -100
    accuracy = (preds[mask] == labels[mask]).mean()
    rows = [np.array_equal(p[m], l[m]) for p, l, m in zip(preds, labels, mask)]
    return {"token_accuracy": round(float(accuracy), 4), "exact_rows": float(np.mean(rows))}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    ds = build_dataset(tokenizer)
    args = TrainingArguments(
        output_dir="out/claims-3b",
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        num_train_epochs=3,
        bf16=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        label_names=["labels"],
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
    )
    trainer.train()
    trainer.save_model("out/claims-3b")


if __name__ == "__main__":
    main()
