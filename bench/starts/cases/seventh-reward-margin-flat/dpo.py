"""DPO after SFT: pairs sampled from the SFT model (two samples per question, judged by a reward model)."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

SFT = "out/handbook-sft-merged"  # Qwen2.5-7B-Instruct, tuned


def main():
    tokenizer = AutoTokenizer.from_pretrained(SFT)
    model = AutoModelForCausalLM.from_pretrained(SFT, dtype=torch.bfloat16, attn_implementation="sdpa")
    pairs = load_dataset("json", data_files="pairs.jsonl", split="train")

    args = DPOConfig(
        output_dir="out/handbook-dpo",
        beta=0.1,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_steps=5,
        max_length=1024,
        bf16=True,
        logging_steps=2,
        save_strategy="epoch",
        report_to="none",
        seed=5,
    )
    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=pairs,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
