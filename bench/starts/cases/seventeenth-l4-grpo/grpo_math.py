import re

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

SYSTEM = (
    "You are a careful math tutor. Think step by step and finish with the final answer "
    "as a plain number inside \\boxed{}."
)

ds = load_dataset("json", data_files="math_train.jsonl", split="train")
ds = ds.map(
    lambda x: {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": x["question"]},
        ],
        "gold": x["answer"],
    },
    remove_columns=["question", "answer"],
)


def extract(text):
    m = re.search(r"<answer>\s*(-?[\d.,]+)\s*</answer>", text, re.S)
    return m.group(1).replace(",", "") if m else None


def correctness_reward(completions, gold, **kwargs):
    texts = [c[0]["content"] for c in completions]
    return [1.0 if extract(t) == g else 0.0 for t, g in zip(texts, gold)]


args = GRPOConfig(
    output_dir="grpo-math",
    learning_rate=1e-5,
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=5,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    num_generations=8,
    max_prompt_length=512,
    max_completion_length=768,
    temperature=1.0,
    beta=0.0,
    max_steps=60,
    logging_steps=1,
    save_steps=30,
    bf16=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.35,
    log_completions=True,
    report_to="none",
    model_init_kwargs={"dtype": torch.bfloat16},
)

trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-3B-Instruct",
    args=args,
    train_dataset=ds,
    reward_funcs=[correctness_reward],
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("grpo-math/final")
