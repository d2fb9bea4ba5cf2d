"""LoRA on Mistral-7B-Instruct-v0.3: pull obligations out of supplier contracts as JSON."""
import json
import os

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
OUT = "runs/clause-r16"


def load_rows(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            yield {
                "prompt": [{"role": "user", "content": row["instruction"] + "\n\n" + row["clause"]}],
                "completion": [{"role": "assistant", "content": json.dumps(row["obligations"], ensure_ascii=False)}],
            }


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    args = SFTConfig(
        output_dir=OUT,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=10,
        save_strategy="epoch",
        eval_strategy="epoch",
        report_to="none",
        seed=13,
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(list(load_rows("data/clauses_train.jsonl"))),
        eval_dataset=Dataset.from_list(list(load_rows("data/clauses_dev.jsonl"))),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(os.path.join(OUT, "final"))
    tokenizer.save_pretrained(os.path.join(OUT, "final"))


if __name__ == "__main__":
    main()
