"""GRPO on unit-conversion word problems, Qwen2.5-7B-Instruct, 8x A100 40GB, ZeRO-3.

accelerate launch --config_file zero3.yaml grpo_units.py
"""
import re

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

SYSTEM = "Think step by step, then give the result between <answer> and </answer>, as a number without the unit."
ANSWER = re.compile(r"<answer>\s*(-?[\d.,]+)\s*</answer>")


def to_chat(row):
    return {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        "target": row["result"],
    }


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def correct(completions, target, **kwargs):
    rewards = []
    for completion, want in zip(completions, target):
        found = ANSWER.search(completion[0]["content"])
        got = number(found.group(1)) if found else None
        rewards.append(1.0 if got is not None and abs(got - float(want)) <= 1e-2 * max(1.0, abs(float(want))) else 0.0)
    return rewards


def formatted(completions, **kwargs):
    return [0.2 if ANSWER.search(c[0]["content"]) else 0.0 for c in completions]


dataset = load_dataset("json", data_files="data/units.jsonl", split="train").map(to_chat, remove_columns=["question", "result"])

config = GRPOConfig(
    output_dir="out/units-grpo",
    learning_rate=1e-6,
    beta=0.0,
    num_generations=8,
    max_completion_length=1024,
    temperature=1.0,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    bf16=True,
    num_train_epochs=1,
    warmup_ratio=0.05,
    logging_steps=1,
    save_steps=50,
    log_completions=False,
    ds3_gather_for_generation=False,  # was out of memory once, found this in an issue
    report_to="none",
)

trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-7B-Instruct",
    reward_funcs=[correct, formatted],
    args=config,
    train_dataset=dataset,
)
trainer.train()
trainer.save_model("out/units-grpo")
