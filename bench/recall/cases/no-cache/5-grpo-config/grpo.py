import re
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import GRPOConfig, GRPOTrainer


@dataclass
class ScriptArgs:
    model_name: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    train_file: str = field(default="data/countdown_train.jsonl")
    output_dir: str = field(default="out/countdown-grpo")


def format_reward(completions, **kwargs):
    return [0.2 if re.search(r"<answer>.+?</answer>", c[0]["content"], re.S) else 0.0 for c in completions]


def answer_reward(completions, target, **kwargs):
    scores = []
    for c, t in zip(completions, target):
        m = re.search(r"<answer>(.+?)</answer>", c[0]["content"], re.S)
        scores.append(1.0 if m and m.group(1).strip() == str(t) else 0.0)
    return scores


def to_prompt(row):
    return {
        "prompt": [
            {"role": "system", "content": "Think first, then give the result inside <answer></answer>."},
            {"role": "user", "content": row["question"]},
        ],
        "target": str(row["result"]),
    }


def main():
    (sa,) = HfArgumentParser(ScriptArgs).parse_args_into_dataclasses()
    ds = load_dataset("json", data_files=sa.train_file, split="train").map(to_prompt)
    tok = AutoTokenizer.from_pretrained(sa.model_name, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(sa.model_name, dtype=torch.bfloat16)
    cfg = GRPOConfig(
        output_dir=sa.output_dir,
        learning_rate=1e-5,
        beta=0.01,
        num_generations=8,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        max_completion_length=512,
        temperature=1.0,
        use_vllm=False,
        generation_kwargs={"use_cache": False},
        gradient_checkpointing=True,
        bf16=True,
        max_steps=500,
        warmup_steps=20,
        save_steps=100,
        logging_steps=5,
        max_grad_norm=0.5,
        seed=11,
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tok,
        reward_funcs=[format_reward, answer_reward],
        args=cfg,
        train_dataset=ds,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(sa.output_dir)


if __name__ == "__main__":
    main()
