import os

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

MODEL = os.environ.get("MODEL", "Qwen/Qwen2.5-1.5B-Instruct")
MAX_LEN = 2048

set_seed(7)
tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
model.config.use_cache = False


def encode(row):
    msgs = row["messages"]
    prompt = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
    full = tok.apply_chat_template(msgs, tokenize=False)
    n_prompt = len(tok(prompt, add_special_tokens=False)["input_ids"])
    ids = tok(full, add_special_tokens=False)["input_ids"][:MAX_LEN]
    labels = [-100] * min(n_prompt, len(ids)) + ids[n_prompt:]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels, "n_prompt": n_prompt}


ds = load_dataset("HuggingFaceH4/no_robots")
ds = ds.filter(lambda r: r["messages"][-1]["role"] == "assistant")
ds = ds.map(encode, remove_columns=ds["train"].column_names, num_proc=8)
ds = ds.filter(lambda r: r["n_prompt"] < MAX_LEN - 16)
ds = ds.remove_columns(["n_prompt"])

args = TrainingArguments(
    output_dir="/scratch/hk/norobots-qwen15",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    per_device_eval_batch_size=4,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    weight_decay=0.0,
    bf16=True,
    tf32=True,
    logging_steps=10,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    dataloader_num_workers=4,
    report_to="none",
    seed=7,
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    processing_class=tok,
)
trainer.train()
trainer.save_model("/scratch/hk/norobots-qwen15/final")
tok.save_pretrained("/scratch/hk/norobots-qwen15/final")
