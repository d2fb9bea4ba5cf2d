"""QLoRA of Llama 3.1 8B for the triage of radiology referrals. Works on one card, now on four (4x A10G)."""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--train", default="data/referrals_train.jsonl")
    p.add_argument("--val", default="data/referrals_val.jsonl")
    p.add_argument("--out", default="runs/triage")
    p.add_argument("--epochs", type=float, default=2)
    return p.parse_args()


def build_model():
    bnb = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = AutoModelForCausalLM.from_pretrained(
        MODEL,
        quantization_config=bnb,
        dtype=torch.bfloat16,
        device_map="auto",
    )
    model.config.use_cache = False
    return prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})


def main():
    cli = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.padding_side = "right"

    data = load_dataset("json", data_files={"train": cli.train, "val": cli.val})
    config = SFTConfig(
        output_dir=cli.out,
        num_train_epochs=cli.epochs,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        bf16=True,
        max_length=2048,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        ddp_find_unused_parameters=False,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=build_model(),
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["val"],
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        ),
    )
    trainer.train()
    trainer.save_model(cli.out + "/final")


if __name__ == "__main__":
    main()
