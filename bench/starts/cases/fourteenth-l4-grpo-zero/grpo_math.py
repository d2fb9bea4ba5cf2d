import re

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

MODEL = "Qwen/Qwen2.5-3B-Instruct"

SYSTEM = """Respond in the following format:
<reasoning>
...
</reasoning>
<answer>
...
</answer>
"""


def gold(text):
    return text.split("####")[1].strip().replace(",", "")


def build(split="train"):
    data = load_dataset("openai/gsm8k", "main", split=split)
    return data.map(
        lambda x: {
            "prompt": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": x["question"]},
            ],
            "gold": gold(x["answer"]),
        },
        remove_columns=["question", "answer"],
    )


FORMAT = re.compile(r"^<reasoning>.*?</reasoning>\s*<answer>.*?</answer>$")
ANSWER = re.compile(r"<answer>(.*?)</answer>")


def format_reward(completions, **kwargs):
    texts = [c[0]["content"].strip() for c in completions]
    return [0.5 if FORMAT.match(t) else 0.0 for t in texts]


def correctness_reward(completions, gold, **kwargs):
    rewards = []
    for completion, target in zip(completions, gold):
        found = ANSWER.search(completion[0]["content"])
        value = found.group(1).strip().replace(",", "") if found else None
        rewards.append(2.0 if value == target else 0.0)
    return rewards


config = GRPOConfig(
    output_dir="outputs/grpo-gsm8k",
    learning_rate=5e-6,
    adam_beta1=0.9,
    adam_beta2=0.99,
    weight_decay=0.1,
    warmup_ratio=0.1,
    lr_scheduler_type="cosine",
    max_grad_norm=0.2,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=512,
    temperature=1.0,
    max_steps=500,
    logging_steps=5,
    save_steps=250,
    bf16=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.3,
    log_completions=True,
    num_completions_to_print=1,
    report_to="none",
)

trainer = GRPOTrainer(
    model=MODEL,
    reward_funcs=[format_reward, correctness_reward],
    args=config,
    train_dataset=build(),
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
)

if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = True
    trainer.train()
    trainer.save_model()
