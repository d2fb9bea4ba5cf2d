import re

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

SYSTEM = (
    "Solve the problem. Think step by step, then give the result on the last line "
    "in the form '#### number'."
)


def prepare(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["question"]},
        ],
        "gold": row["answer"].split("####")[-1].strip().replace(",", ""),
    }


def parse(text):
    hits = re.findall(r"####\s*(-?[\d,]*\.?\d+)", text)
    return hits[-1].replace(",", "") if hits else None


def correct(completions, gold, **kwargs):
    scores = []
    for c, g in zip(completions, gold):
        got = parse(c[0]["content"])
        try:
            scores.append(1.0 if got is not None and float(got) == float(g) else 0.0)
        except ValueError:
            scores.append(0.0)
    return scores


def has_format(completions, **kwargs):
    return [0.1 if parse(c[0]["content"]) is not None else 0.0 for c in completions]


ds = load_dataset("openai/gsm8k", "main", split="train").map(
    prepare, remove_columns=["question", "answer"]
)

args = GRPOConfig(
    output_dir="grpo-qwen3b-gsm8k",
    learning_rate=1e-5,
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=10,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_prompt_length=512,
    max_completion_length=768,
    temperature=1.0,
    beta=0.0,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    bf16=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.9,
    model_init_kwargs={"torch_dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
    logging_steps=1,
    save_steps=100,
    max_steps=600,
    report_to="none",
)

trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-3B-Instruct",
    reward_funcs=[correct, has_format],
    args=args,
    train_dataset=ds,
    peft_config=LoraConfig(
        r=32,
        lora_alpha=64,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    ),
)
trainer.train()
trainer.save_model()
