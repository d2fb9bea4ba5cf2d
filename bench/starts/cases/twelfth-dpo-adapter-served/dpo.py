"""Stage 2: DPO on top of the SFT model (stage 1 was merged into outputs/sft-merged by axolotl merge-lora)."""
import json

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

SFT = "outputs/sft-merged"


def load_pairs(path):
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)
            rows.append(
                {
                    "prompt": [
                        {"role": "system", "content": r["system"]},
                        {"role": "user", "content": r["note"]},
                    ],
                    "chosen": [{"role": "assistant", "content": r["good_json"]}],
                    "rejected": [{"role": "assistant", "content": r["bad_json"]}],
                }
            )
    return Dataset.from_list(rows).train_test_split(test_size=0.05, seed=1)


tokenizer = AutoTokenizer.from_pretrained(SFT)
model = AutoModelForCausalLM.from_pretrained(SFT, dtype=torch.bfloat16, attn_implementation="sdpa")
data = load_pairs("data/dpo_pairs.jsonl")

trainer = DPOTrainer(
    model=model,
    args=DPOConfig(
        output_dir="outputs/dpo-lora",
        beta=0.1,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=50,
        save_strategy="no",
        report_to="none",
    ),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    processing_class=tokenizer,
    peft_config=LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    ),
)
trainer.train()
trainer.save_model("outputs/dpo-lora")
