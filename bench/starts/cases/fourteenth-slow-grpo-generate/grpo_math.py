import re

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

SYSTEM = (
    "Think step by step between <think> and </think>, then write the final number "
    "between <answer> and </answer>."
)


def prepare(example):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": example["question"]},
        ],
        "gold": example["answer"].split("####")[-1].strip().replace(",", ""),
    }


dataset = load_dataset("openai/gsm8k", "main", split="train")
dataset = dataset.map(prepare, remove_columns=["question", "answer"])

ANSWER = re.compile(r"<answer>\s*(-?[\d.,]+)\s*</answer>")


def correct(completions, gold, **kwargs):
    scores = []
    for completion, want in zip(completions, gold):
        found = ANSWER.search(completion[0]["content"])
        got = found.group(1).replace(",", "").rstrip(".") if found else None
        scores.append(1.0 if got == want else 0.0)
    return scores


def formatted(completions, **kwargs):
    pattern = re.compile(r"^<think>.*?</think>\s*<answer>.*?</answer>\s*$", re.DOTALL)
    return [0.2 if pattern.match(c[0]["content"]) else 0.0 for c in completions]


args = GRPOConfig(
    output_dir="runs/grpo-gsm8k",
    learning_rate=1e-5,
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=10,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_prompt_length=512,
    max_completion_length=1024,
    temperature=1.0,
    beta=0.0,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    max_steps=600,
    logging_steps=1,
    save_steps=100,
    report_to="wandb",
    run_name="grpo-gsm8k-3b",
    seed=3,
)

trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-3B-Instruct",
    reward_funcs=[correct, formatted],
    args=args,
    train_dataset=dataset,
    peft_config=LoraConfig(
        r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"
    ),
)
trainer.train()
trainer.save_model()
