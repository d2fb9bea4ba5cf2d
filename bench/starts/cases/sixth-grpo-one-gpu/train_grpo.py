"""GRPO on arithmetic word problems, one H100 80 GB, vLLM in the same process."""
import re

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
SYSTEM = "Think step by step, then give the result in <answer></answer>."
ANSWER = re.compile(r"<answer>\s*(-?\d+)\s*</answer>")


def to_prompt(row):
    return {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        "gold": str(row["answer"]),
    }


def reward_correct(completions, gold, **kwargs):
    out = []
    for completion, g in zip(completions, gold):
        found = ANSWER.search(completion[0]["content"])
        out.append(1.0 if found and found.group(1) == g else 0.0)
    return out


def reward_format(completions, **kwargs):
    return [0.2 if ANSWER.search(c[0]["content"]) else 0.0 for c in completions]


def main():
    data = load_dataset("json", data_files="data/problems.jsonl", split="train")
    data = data.map(to_prompt, remove_columns=["question", "answer"])
    args = GRPOConfig(
        output_dir="out/grpo-7b",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=512,
        learning_rate=1e-5,
        lr_scheduler_type="constant_with_warmup",
        warmup_ratio=0.05,
        beta=0.0,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.9,
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
        logging_steps=1,
        save_steps=100,
        max_steps=400,
        report_to="none",
        seed=3,
    )
    trainer = GRPOTrainer(
        model=BASE,
        args=args,
        train_dataset=data,
        reward_funcs=[reward_correct, reward_format],
        peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
