import re

from datasets import load_dataset
from math_verify import parse, verify
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

SYSTEM = "Solve the problem. Put the final answer in \\boxed{}."


def to_chat(row):
    return {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        "gold": row["answer"].split("####")[-1].strip().replace(",", ""),
    }


def accuracy_reward(completions, gold, **kwargs):
    rewards = []
    for completion, answer in zip(completions, gold):
        text = completion[0]["content"].split("</think>")[-1]
        boxed = re.findall(r"\\boxed\{([^{}]*)\}", text)
        rewards.append(float(bool(boxed) and verify(parse(answer), parse(boxed[-1]))))
    return rewards


def format_reward(completions, **kwargs):
    return [0.2 if "</think>" in c[0]["content"] and "\\boxed{" in c[0]["content"] else 0.0 for c in completions]


dataset = load_dataset("openai/gsm8k", "main", split="train").map(to_chat, remove_columns=["question", "answer"])

config = GRPOConfig(
    output_dir="out/grpo-qwen3-4b",
    learning_rate=1e-5,
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=10,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_prompt_length=512,
    max_completion_length=384,
    temperature=1.0,
    beta=0.0,
    max_steps=400,
    bf16=True,
    gradient_checkpointing=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.35,
    logging_steps=5,
    save_steps=100,
    log_completions=False,
    report_to="none",
)

trainer = GRPOTrainer(
    model="Qwen/Qwen3-4B",
    args=config,
    reward_funcs=[accuracy_reward, format_reward],
    train_dataset=dataset,
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
