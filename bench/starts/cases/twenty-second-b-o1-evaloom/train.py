import numpy as np
from datasets import load_dataset
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype="bfloat16")


def encode(ex):
    p = tok.apply_chat_template([{"role": "user", "content": ex["question"]}], tokenize=False, add_generation_prompt=True)
    p = tok(p, add_special_tokens=False)["input_ids"]
    a = tok(ex["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": (p + a)[:1024], "attention_mask": [1] * len((p + a)[:1024]), "labels": ([-100] * len(p) + a)[:1024]}


def compute_metrics(pred):
    ids = pred.predictions.argmax(-1)[:, :-1]
    labels = pred.label_ids[:, 1:]
    keep = labels != -100
    return {"token_accuracy": float((ids[keep] == labels[keep]).mean())}


ds = load_dataset("json", data_files={"train": "train.jsonl", "test": "test.jsonl"})
ds = ds.map(encode, remove_columns=["question", "answer"])
args = TrainingArguments(
    "out", num_train_epochs=2, per_device_train_batch_size=4, per_device_eval_batch_size=4, gradient_accumulation_steps=4,
    learning_rate=1e-5, warmup_ratio=0.03, bf16=True, gradient_checkpointing=True, logging_steps=25,
    eval_strategy="steps", eval_steps=200, save_steps=200, report_to="none",
)
Trainer(model=model, args=args, train_dataset=ds["train"], eval_dataset=ds["test"], data_collator=DataCollatorForSeq2Seq(tok),
        compute_metrics=compute_metrics, processing_class=tok).train()
