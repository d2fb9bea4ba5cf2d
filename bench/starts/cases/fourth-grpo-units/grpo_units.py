import re

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

SYSTEM = "Think step by step, then write the result as <answer>number</answer>."
ANSWER = re.compile(r"<answer>\s*(-?[\d.,]+)\s*</answer>")


def to_prompt(row):
    return {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        "solution": row["answer"],
    }


def correct(completions, solution, **kwargs):
    rewards = []
    for completion, gold in zip(completions, solution):
        found = ANSWER.search(completion[0]["content"])
        rewards.append(1.0 if found and found.group(1).replace(",", "") == gold else 0.0)
    return rewards


def well_formed(completions, **kwargs):
    return [0.2 if ANSWER.search(c[0]["content"]) else 0.0 for c in completions]


def main():
    dataset = load_dataset("json", data_files="word_problems.jsonl", split="train").map(to_prompt)
    args = GRPOConfig(
        output_dir="out/grpo-units",
        model_init_kwargs={"dtype": "bfloat16"},
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=1024,
        learning_rate=5e-6,
        beta=0.0,
        num_train_epochs=2,
        gradient_checkpointing=True,
        bf16=True,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.85,
        logging_steps=1,
        save_steps=50,
        report_to="none",
    )
    trainer = GRPOTrainer(
        model="Qwen/Qwen2.5-3B-Instruct",
        args=args,
        reward_funcs=[correct, well_formed],
        train_dataset=dataset,
        peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
