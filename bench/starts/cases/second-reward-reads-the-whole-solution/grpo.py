import re

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

SYSTEM = (
    "Respond in the following format:\n<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>\n"
    "The answer is a number without unit."
)


def to_prompt(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["question"]},
        ],
        "solution": row["answer"],
    }


def extract(text):
    m = re.search(r"<answer>\s*(.*?)\s*</answer>", text, re.DOTALL)
    return m.group(1).replace(",", "").strip() if m else None


def correctness_reward(completions, solution, **kwargs):
    answers = [extract(c[0]["content"]) for c in completions]
    return [2.0 if a is not None and a == s.strip() else 0.0 for a, s in zip(answers, solution)]


dataset = load_dataset("json", data_files="data/math_train.jsonl", split="train").map(to_prompt)
args = GRPOConfig(
    output_dir="outputs/qwen2.5-1.5b-grpo",
    learning_rate=1e-6,
    beta=0.0,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=512,
    max_steps=300,
    bf16=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.3,
    logging_steps=1,
    temperature=1.0,
    report_to="none",
)
trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-1.5B-Instruct",
    reward_funcs=correctness_reward,
    args=args,
    train_dataset=dataset,
)
trainer.train()
