from dataclasses import dataclass

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from rewards import correct_reward, format_reward

SYSTEM = (
    "Solve the problem. Think inside <think></think>, then give the final number alone "
    "inside <answer></answer>."
)


@dataclass
class Run:
    model: str = "Qwen/Qwen2.5-3B-Instruct"
    train: str = "data/word_problems.jsonl"
    out: str = "outputs/grpo-3b"


def shape(example):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": example["question"]},
        ]
    }


def main(run: Run):
    data = load_dataset("json", data_files=run.train, split="train").map(shape)
    trainer = GRPOTrainer(
        model=run.model,
        reward_funcs=[format_reward, correct_reward],
        train_dataset=data,
        args=GRPOConfig(
            output_dir=run.out,
            learning_rate=1e-6,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=10,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=4,
            num_generations=8,
            max_prompt_length=512,
            max_completion_length=768,
            temperature=1.0,
            beta=0.0,
            bf16=True,
            gradient_checkpointing=True,
            use_vllm=True,
            vllm_mode="colocate",
            vllm_gpu_memory_utilization=0.35,
            max_steps=300,
            logging_steps=10,
            save_steps=100,
            report_to="none",
        ),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main(Run())
