"""DPO with LoRA on top of our SFT model; hyperparameters of the Zephyr paper.

python dpo_lora.py --model out/sft-merged --pairs data/pairs.train.jsonl 2>&1 | tee train.log
"""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import DPOConfig, DPOTrainer


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", default="out/sft-merged")
    p.add_argument("--pairs", default="data/pairs.train.jsonl")
    p.add_argument("--eval-pairs", default="data/pairs.val.jsonl")
    p.add_argument("--out", default="out/dpo-lora")
    return p.parse_args()


def main():
    cli = get_args()
    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(cli.model)
    model = AutoModelForCausalLM.from_pretrained(cli.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    data = load_dataset("json", data_files={"train": cli.pairs, "eval": cli.eval_pairs})

    lora = LoraConfig(
        r=16,
        lora_alpha=16,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    config = DPOConfig(
        output_dir=cli.out,
        beta=0.1,
        learning_rate=5e-7,
        lr_scheduler_type="cosine",
        warmup_steps=18,
        num_train_epochs=1,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=16,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        max_length=2048,
        bf16=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=60,
        save_steps=60,
        save_total_limit=1,
        report_to="none",
        seed=42,
    )
    trainer = DPOTrainer(
        model=model,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["eval"],
        processing_class=tokenizer,
        peft_config=lora,
    )
    trainer.model.print_trainable_parameters()
    trainer.train()
    trainer.save_model(cli.out)


if __name__ == "__main__":
    main()
