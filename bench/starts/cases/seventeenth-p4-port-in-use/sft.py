from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Extra:
    model: str = field(default="mistralai/Mistral-7B-Instruct-v0.3")
    train_file: str = field(default="data/train.parquet")
    eval_file: str = field(default="data/dev.parquet")


def main():
    parser = HfArgumentParser((Extra, SFTConfig))
    parser.set_defaults(
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=10,
        save_steps=200,
        eval_strategy="steps",
        eval_steps=200,
        report_to="tensorboard",
        ddp_find_unused_parameters=False,
    )
    extra, args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(extra.model)
    tokenizer.pad_token = "[control_8]"
    model = AutoModelForCausalLM.from_pretrained(extra.model, dtype=torch.bfloat16)

    # columns: prompt (list of messages), completion (list of messages)
    train = load_dataset("parquet", data_files=extra.train_file, split="train")
    dev = load_dataset("parquet", data_files=extra.eval_file, split="train")

    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
