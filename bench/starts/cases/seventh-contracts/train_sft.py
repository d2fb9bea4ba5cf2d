"""Extraction of contract terms as JSON. Qwen2.5-7B-Instruct, LoRA, TRL.

After five epochs the model still writes an essay about the contract, as before the training.
"""
from dataclasses import dataclass

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    data: str = "data/contracts.jsonl"
    out: str = "outputs/contracts-lora"
    epochs: float = 5.0
    lr: float = 1e-4


def main():
    (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    rows = load_dataset("json", data_files=args.data, split="train")
    rows = rows.train_test_split(test_size=10, seed=1)

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        learning_rate=args.lr,
        warmup_ratio=0.05,
        lr_scheduler_type="cosine",
        max_length=1024,
        completion_only_loss=True,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=2,
        save_strategy="epoch",
        eval_strategy="epoch",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
