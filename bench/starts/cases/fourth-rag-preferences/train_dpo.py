"""DPO on judged answers of the IT helpdesk RAG (Qwen2.5-7B-Instruct, LoRA, 1x H100)."""
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class Arguments:
    model: str = field(default="Qwen/Qwen2.5-7B-Instruct")
    data: str = field(default="data/rag_prefs.jsonl")
    out: str = field(default="runs/rag-dpo")
    beta: float = field(default=0.1)
    lr: float = field(default=2e-5)


def main():
    (a,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    pairs = load_dataset("json", data_files=a.data, split="train").shuffle(seed=0)

    trainer = DPOTrainer(
        model=model,
        args=DPOConfig(
            output_dir=a.out,
            beta=a.beta,
            learning_rate=a.lr,
            lr_scheduler_type="cosine",
            warmup_ratio=0.1,
            num_train_epochs=3,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=1024,
            bf16=True,
            logging_steps=5,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=pairs,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=32, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
