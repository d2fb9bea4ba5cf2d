from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def correct(completions, solution, **kwargs):
    return [float(s in c[0]["content"]) for c, s in zip(completions, solution, strict=True)]


trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-7B-Instruct",
    reward_funcs=correct,
    args=GRPOConfig(
        output_dir="grpo-math",
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.9,
        num_generations=8,
        max_completion_length=1024,
        per_device_train_batch_size=8,
        learning_rate=1e-6,
        bf16=True,
    ),
    train_dataset=load_dataset("json", data_files="math.jsonl", split="train"),
)
trainer.train()
