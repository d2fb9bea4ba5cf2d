import re

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

SYSTEM = "Reason between <think> and </think>, then give the number between <answer> and </answer>."
SHAPE = re.compile(r"<think>.+?</think>\s*<answer>(.+?)</answer>", re.S)


def to_prompt(row):
    return {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        "target": row["target"],
    }


def right_number(completions, target, **kwargs):
    scores = []
    for c, t in zip(completions, target):
        m = SHAPE.search(c[0]["content"])
        scores.append(1.0 if m and m.group(1).strip() == str(t) else 0.0)
    return scores


def right_shape(completions, **kwargs):
    return [0.2 if SHAPE.search(c[0]["content"]) else 0.0 for c in completions]


def main():
    rows = load_dataset("json", data_files="problems.jsonl", split="train").map(to_prompt)
    args = GRPOConfig(
        output_dir="grpo-runs",
        learning_rate=1e-5,
        warmup_steps=0.05,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=32,
        temperature=1.0,
        beta=0.0,
        num_train_epochs=1,
        bf16=True,
        logging_steps=5,
        report_to="none",
    )
    trainer = GRPOTrainer(
        model="Qwen/Qwen2.5-3B-Instruct",
        reward_funcs=[right_number, right_shape],
        args=args,
        train_dataset=rows,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("grpo-adapter")


if __name__ == "__main__":
    main()
