import re

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

MODEL = "Qwen/Qwen2.5-3B-Instruct"

SYSTEM_PROMPT = """You solve math word problems. Think step by step, then give the final number in this format:
<reasoning>
...
</reasoning>
<answer>
...
</answer>"""


def extract_answer(text: str) -> str:
    match = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    if match is None:
        return ""
    return match.group(1).strip().replace(",", "").replace("$", "")


def load(path):
    ds = load_dataset("json", data_files=path, split="train")

    def to_prompt(row):
        return {
            "prompt": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": row["question"]},
            ],
            "gold": row["answer"],
        }

    return ds.map(to_prompt, remove_columns=ds.column_names)


def correctness_reward(completions, gold, **kwargs):
    answers = [extract_answer(c[0]["content"]) for c in completions]
    return [1.0 if a == g else 0.0 for a, g in zip(answers, gold)]


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    train = load("gsm_train.jsonl")

    args = GRPOConfig(
        output_dir="outputs/grpo-3b",
        learning_rate=1e-5,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=10,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=512,
        temperature=1.0,
        beta=0.0,
        max_steps=300,
        logging_steps=5,
        save_steps=100,
        bf16=True,
        gradient_checkpointing=True,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.35,
        model_init_kwargs={"dtype": torch.bfloat16},
        report_to="none",
    )
    trainer = GRPOTrainer(
        model=MODEL,
        reward_funcs=[correctness_reward],
        args=args,
        train_dataset=train,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train()
    trainer.save_model("outputs/grpo-3b/final")


if __name__ == "__main__":
    main()
