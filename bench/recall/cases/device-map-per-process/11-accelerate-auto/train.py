import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen3-8B")
    p.add_argument("--out", default="runs/capybara")
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


def get_model(name):
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, device_map="auto")
    model.config.use_cache = False
    return model


def main():
    a = parse()
    tok = AutoTokenizer.from_pretrained(a.base)
    ds = load_dataset("trl-lib/Capybara")
    trainer = SFTTrainer(
        model=get_model(a.base),
        args=SFTConfig(
            output_dir=a.out,
            learning_rate=a.lr,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=2048,
            assistant_only_loss=True,
            bf16=True,
            eval_strategy="steps",
            eval_steps=100,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(a.out + "/adapter")


if __name__ == "__main__":
    main()
