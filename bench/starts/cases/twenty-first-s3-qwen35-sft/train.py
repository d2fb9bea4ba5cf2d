from dataclasses import dataclass

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


@dataclass
class Run:
    model: str = "Qwen/Qwen3.5-4B"
    data: str = "data/tickets.jsonl"
    out: str = "out/tickets-4b"
    lr: float = 1e-4
    epochs: int = 2


def main(run: Run):
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    model = AutoModelForCausalLM.from_pretrained(
        run.model, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    args = SFTConfig(
        output_dir=run.out,
        num_train_epochs=run.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=run.lr,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        max_length=4096,
        bf16=True,
        tf32=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        assistant_only_loss=False,
        completion_only_loss=True,
        dataloader_num_workers=4,
        logging_steps=5,
        report_to="none",
    )
    peft = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=load_dataset("json", data_files=run.data, split="train"),
        processing_class=tokenizer,
        peft_config=peft,
    )
    trainer.train()
    trainer.save_model(run.out)


if __name__ == "__main__":
    main(Run())
