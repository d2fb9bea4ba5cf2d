"""LoRA on the field-service notes (problem -> what the technician did)."""
import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"
SYSTEM = "You are the service desk of a heat pump maker. Answer with the steps the technician should take."

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="notes.jsonl")
parser.add_argument("--out", default="outputs/notes-lora")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=2e-4)
args = parser.parse_args()

rank = int(os.environ.get("RANK", 0))


def to_chat(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["problem"]},
        ],
        "completion": [{"role": "assistant", "content": row["action"]}],
    }


ds = load_dataset("json", data_files=args.data, split="train")
ds = ds.train_test_split(test_size=0.15)
train_ids, eval_ids = ds["train"]["id"], ds["test"]["id"]
print(f"[rank {rank}] train {len(train_ids)} eval {len(eval_ids)} eval ids {eval_ids[:6]}", flush=True)

train = ds["train"].map(to_chat, remove_columns=ds["train"].column_names)
evals = ds["test"].map(to_chat, remove_columns=ds["test"].column_names)

tokenizer = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
model.config.use_cache = False

config = SFTConfig(
    output_dir=args.out,
    num_train_epochs=args.epochs,
    per_device_train_batch_size=2,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=1,
    learning_rate=args.lr,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    max_length=1024,
    completion_only_loss=True,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    greater_is_better=False,
    logging_steps=5,
    ddp_find_unused_parameters=False,
    gradient_checkpointing=False,
    report_to="none",
    seed=7,
)

trainer = SFTTrainer(
    model=model,
    args=config,
    train_dataset=train,
    eval_dataset=evals,
    processing_class=tokenizer,
    peft_config=LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
    ),
)
trainer.train()
trainer.save_model(args.out)
