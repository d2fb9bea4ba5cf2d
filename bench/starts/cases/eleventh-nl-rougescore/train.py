import json
import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

BASE = "Qwen/Qwen2.5-3B-Instruct"
OUT = "outputs/claims-3b"
MAXLEN = 2048

tok = AutoTokenizer.from_pretrained(BASE)


def read(path):
    with open(path, encoding="utf-8") as fh:
        return [json.loads(l) for l in fh if l.strip()]


def encode(row):
    prompt_msgs, target = row["messages"][:-1], row["messages"][-1]["content"]
    prompt = tok.apply_chat_template(prompt_msgs, tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(target + "<|im_end|>", add_special_tokens=False)["input_ids"]
    ids = (p + a)[:MAXLEN]
    labels = ([-100] * len(p) + a)[:MAXLEN]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


train_ds = Dataset.from_list([encode(r) for r in read("data/claims_train.jsonl")])
val_ds = Dataset.from_list([encode(r) for r in read("data/claims_val.jsonl")])
print(len(train_ds), len(val_ds), max(len(x) for x in train_ds["input_ids"]))

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
model.config.use_cache = False
model.enable_input_require_grads()
model = get_peft_model(
    model,
    LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
model.print_trainable_parameters()


def to_ids(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(ev):
    preds, labels = ev.predictions[:, :-1], ev.label_ids[:, 1:]
    keep = labels != -100
    hit = (preds == labels) & keep
    exact = np.array([h[k].all() for h, k in zip(hit, keep) if k.any()])
    return {"token_acc": float(hit.sum() / keep.sum()), "forced_exact": float(exact.mean())}


args = TrainingArguments(
    output_dir=OUT,
    num_train_epochs=4,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=2e-4,
    warmup_steps=40,
    lr_scheduler_type="cosine",
    bf16=True,
    logging_steps=25,
    eval_strategy="steps",
    eval_steps=50,
    save_strategy="steps",
    save_steps=50,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="token_acc",
    greater_is_better=False,
    report_to="none",
    seed=3407,
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train_ds,
    eval_dataset=val_ds,
    data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    preprocess_logits_for_metrics=to_ids,
    compute_metrics=compute_metrics,
    processing_class=tok,
)
trainer.train()
trainer.save_state()
trainer.save_model(f"{OUT}/final")
tok.save_pretrained(f"{OUT}/final")
