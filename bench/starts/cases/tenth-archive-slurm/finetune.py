"""LoRA fine-tune of Llama 3.1 8B on descriptions of archive boxes (two nodes with four H100 each)."""
import argparse

import torch
import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def read(path):
    with open(path) as f:
        return yaml.safe_load(f)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="configs/archive.yaml")
    cfg = read(parser.parse_args().config)

    tokenizer = AutoTokenizer.from_pretrained(cfg["model"])
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.bfloat16, attn_implementation="sdpa")

    data = load_dataset("json", data_files={"train": cfg["train"], "validation": cfg["validation"]})

    args = SFTConfig(
        output_dir=cfg["output_dir"],
        per_device_train_batch_size=cfg["batch"],
        gradient_accumulation_steps=cfg["accumulation"],
        num_train_epochs=cfg["epochs"],
        learning_rate=float(cfg["learning_rate"]),
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_length=cfg["max_length"],
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        assistant_only_loss=False,
        completion_only_loss=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=10,
        report_to="tensorboard",
    )
    lora = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        processing_class=tokenizer,
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
