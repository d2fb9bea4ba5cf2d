import re

import torch
from datasets import load_dataset
from math_verify import parse, verify
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

MODEL = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"

PROMPT = "{q}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def to_prompt(ex):
    gold = ex["answer"].split("####")[-1].strip().replace(",", "")
    return {"prompt": [{"role": "user", "content": PROMPT.format(q=ex["question"])}], "gold": gold}


train = load_dataset("openai/gsm8k", "main", split="train").map(to_prompt, remove_columns=["question", "answer"])


def accuracy_reward(completions, gold, **kwargs):
    scores = []
    for c, g in zip(completions, gold):
        text = c[0]["content"]
        if "\\boxed{" not in text:
            scores.append(0.0)
            continue
        scores.append(1.0 if verify(parse(f"${g}$"), parse(text)) else 0.0)
    return scores


def format_reward(completions, **kwargs):
    pat = re.compile(r"</think>.*\\boxed\{.+\}", re.DOTALL)
    return [0.5 if pat.search(c[0]["content"]) else 0.0 for c in completions]


args = GRPOConfig(
    output_dir="runs/grpo-r1-1.5b",
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=2,
    num_generations=8,
    max_prompt_length=512,
    temperature=0.8,
    beta=0.02,
    max_steps=500,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=5,
    save_steps=100,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.35,
    report_to="wandb",
    model_init_kwargs={"torch_dtype": torch.bfloat16},
)

trainer = GRPOTrainer(
    model=MODEL,
    args=args,
    reward_funcs=[accuracy_reward, format_reward],
    train_dataset=train,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
