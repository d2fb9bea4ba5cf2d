"""SFT of Qwen2.5-3B-Instruct on recipes in our house style (TRL + PEFT, one A10G)."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"
OUT = "outputs/house-style-lora"


def build_trainer():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    data = load_dataset("json", data_files="data/house_style.jsonl", split="train").train_test_split(0.06, seed=3)
    args = SFTConfig(
        output_dir=OUT,
        num_train_epochs=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        max_length=1024,
        gradient_checkpointing=True,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        report_to="none",
    )
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    return SFTTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        peft_config=lora,
    )


if __name__ == "__main__":
    trainer = build_trainer()
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model(OUT)
