from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from rewards import accuracy_reward, format_reward

SYSTEM = """Solve the problem. Answer in this format:
<think>
your reasoning
</think>
<answer>
the number
</answer>"""


def to_prompt(row):
    return {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        "answer": row["answer"],
    }


dataset = load_dataset("json", data_files="math.jsonl", split="train").map(to_prompt, remove_columns=["question"])

args = GRPOConfig(
    output_dir="outputs/grpo",
    learning_rate=5e-6,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=512,
    temperature=1.0,
    num_train_epochs=1,
    logging_steps=5,
    bf16=True,
    log_completions=False,
    report_to="none",
)
trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-3B-Instruct",
    reward_funcs=[format_reward, accuracy_reward],
    args=args,
    train_dataset=dataset,
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
