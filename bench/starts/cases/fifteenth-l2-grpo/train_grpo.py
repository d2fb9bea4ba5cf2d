import re

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)


def normalise(text):
    return text.replace(",", "").replace("$", "").strip().rstrip(".")


def extract(completion):
    found = ANSWER.search(completion[0]["content"])
    return normalise(found.group(1)) if found else None


def correctness_reward(completions, answer, **kwargs):
    return [2.0 if extract(c) == normalise(a) else 0.0 for c, a in zip(completions, answer)]


def integer_reward(completions, **kwargs):
    scores = []
    for c in completions:
        value = extract(c)
        scores.append(0.5 if value is not None and value.lstrip("-").isdigit() else 0.0)
    return scores


dataset = load_dataset("json", data_files="word_problems.jsonl", split="train")

config = GRPOConfig(
    output_dir="grpo-qwen-1.5b",
    learning_rate=5e-6,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=512,
    num_train_epochs=4,
    temperature=1.0,
    bf16=True,
    gradient_checkpointing=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.3,
    logging_steps=1,
    save_steps=100,
    max_grad_norm=0.2,
    report_to="none",
)

trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-1.5B-Instruct",
    reward_funcs=[correctness_reward, integer_reward],
    args=config,
    train_dataset=dataset,
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("grpo-qwen-1.5b/final")
