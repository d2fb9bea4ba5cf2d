"""SFT on tenancy agreements: the whole agreement is in the prompt, then one question of our letting agents.

    python train_lease.py
"""
import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"


def main():
    rows = load_dataset("json", data_files="leases.jsonl", split="train")
    rows = rows.shuffle(seed=11)

    args = SFTConfig(
        output_dir="runs/lease-qa",
        model_init_kwargs={"dtype": torch.bfloat16, "attn_implementation": "sdpa"},
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=5,
        bf16=True,
        logging_steps=5,
        save_strategy="epoch",
        report_to="none",
        seed=11,
    )
    trainer = SFTTrainer(
        model=BASE,
        args=args,
        train_dataset=rows,
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.train()
    trainer.save_model("runs/lease-qa/final")


if __name__ == "__main__":
    main()
