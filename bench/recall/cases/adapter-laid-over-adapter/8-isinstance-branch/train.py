import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def ensure_adapter(model, rank):
    if isinstance(model, PeftModel):
        return model
    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def load(base, previous):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    if previous and os.path.isdir(previous):
        model = PeftModel.from_pretrained(model, previous, is_trainable=True)
    return model


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--previous", default=None)
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--out", default="out/lora")
    a = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(a.base)
    model = load(a.base, a.previous)
    model = ensure_adapter(model, a.rank)
    model.print_trainable_parameters()

    ds = load_dataset("json", data_files="data/train.jsonl", split="train").select_columns(["prompt", "completion"])
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=a.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=2048,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(a.out)
    tokenizer.save_pretrained(a.out)


if __name__ == "__main__":
    main()
