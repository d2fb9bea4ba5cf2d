import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from stages import start_point


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--sft", default="runs/sft/adapter")
    p.add_argument("--out", default="runs/dpo")
    a = p.parse_args()

    folder = start_point(a.base, a.sft, "runs/sft/plain")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    pairs = load_dataset("trl-lib/ultrafeedback_binarized")
    trainer = DPOTrainer(
        model=model,
        args=DPOConfig(
            output_dir=a.out,
            beta=0.1,
            learning_rate=5e-6,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=16,
            max_length=2048,
            bf16=True,
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=200,
            report_to="none",
        ),
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"].select(range(500)),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
