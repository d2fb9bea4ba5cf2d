import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base_model", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--sft_adapter", default="out/sft-lora")
    ap.add_argument("--pairs", default="data/pairs.jsonl")
    ap.add_argument("--output_dir", default="out/dpo-lora")
    return ap.parse_args()


def main():
    args = get_args()
    tokenizer = AutoTokenizer.from_pretrained(args.base_model)

    model = AutoModelForCausalLM.from_pretrained(args.base_model, dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(model, args.sft_adapter, is_trainable=True)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        task_type="CAUSAL_LM",
    )

    ds = load_dataset("json", data_files=args.pairs, split="train")
    ds = ds.select_columns(["prompt", "chosen", "rejected"]).train_test_split(test_size=0.05, seed=1)

    training_args = DPOConfig(
        output_dir=args.output_dir,
        beta=0.1,
        learning_rate=5e-6,
        num_train_epochs=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        max_length=2048,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        args=training_args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
