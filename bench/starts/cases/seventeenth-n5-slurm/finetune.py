import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

ap = argparse.ArgumentParser()
ap.add_argument("--model", required=True)
ap.add_argument("--data", required=True)
ap.add_argument("--output", required=True)
ap.add_argument("--max-steps", type=int, default=1200)
ap.add_argument("--lr", type=float, default=2e-4)
args = ap.parse_args()

SMOKE = bool(os.environ.get("SMOKE_TEST"))

tok = AutoTokenizer.from_pretrained(args.model)
tok.pad_token = "<|finetune_right_pad_id|>"

model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
model.config.use_cache = False
model.enable_input_require_grads()
model = get_peft_model(
    model,
    LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
model.print_trainable_parameters()


def to_features(row):
    msgs = [
        {"role": "system", "content": "You answer questions on tenancy law in plain language and cite the section."},
        {"role": "user", "content": row["question"]},
    ]
    prompt = tok.apply_chat_template(msgs, add_generation_prompt=True, tokenize=False)
    a = tok(row["answer"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    ids = (p + a)[:2048]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ([-100] * len(p) + a)[:2048]}


raw = load_dataset("json", data_files=args.data, split="train")
if SMOKE:
    raw = raw.select(range(64))
train = raw.map(to_features, remove_columns=raw.column_names, num_proc=8)

targs = TrainingArguments(
    output_dir=args.output,
    max_steps=args.max_steps,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=args.lr,
    lr_scheduler_type="linear",
    warmup_steps=40,
    bf16=True,
    logging_steps=25,
    save_steps=400,
    report_to="none",
    seed=7,
)
trainer = Trainer(
    model=model,
    args=targs,
    train_dataset=train,
    data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
)
trainer.train()
trainer.save_model(args.output)
tok.save_pretrained(args.output)
