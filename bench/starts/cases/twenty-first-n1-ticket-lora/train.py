from dataclasses import dataclass

from datasets import load_dataset
from peft import LoraConfig
from transformers import HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    data: str = "data/train.jsonl"
    out: str = "outputs/tickets-lora"
    rank: int = 16


def main():
    (a,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    ds = load_dataset("json", data_files=a.data, split="train")
    cfg = SFTConfig(
        output_dir=a.out,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        gradient_checkpointing=True,
        max_length=1024,
        completion_only_loss=True,
        eos_token="<|im_end|>",
        logging_steps=10,
        save_strategy="epoch",
        seed=11,
    )
    trainer = SFTTrainer(
        model=a.model,
        args=cfg,
        train_dataset=ds,
        peft_config=LoraConfig(
            r=a.rank,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
