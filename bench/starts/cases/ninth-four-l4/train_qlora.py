#!/usr/bin/env python
"""QLoRA of Mistral 7B Instruct v0.3. Started with run.sh on the box with the four L4."""
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Opts:
    base: str = field(default="mistralai/Mistral-7B-Instruct-v0.3")
    data: str = field(default="chats.jsonl")
    out: str = field(default="out/mistral-returns")
    seed: int = field(default=13)


def load_model(opts):
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_use_double_quant=True,
    )
    model = AutoModelForCausalLM.from_pretrained(
        opts.base,
        quantization_config=quant,
        dtype=torch.bfloat16,
        device_map={"": 0},
        attn_implementation="sdpa",
    )
    model.config.use_cache = False
    return prepare_model_for_kbit_training(
        model,
        use_gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
    )


def main():
    (opts,) = HfArgumentParser(Opts).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(opts.base)
    tokenizer.pad_token = tokenizer.unk_token
    tokenizer.padding_side = "right"

    data = load_dataset("json", data_files=opts.data, split="train").train_test_split(test_size=20, seed=opts.seed)
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    )
    args = SFTConfig(
        output_dir=opts.out,
        max_length=2048,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        ddp_find_unused_parameters=False,
        optim="paged_adamw_8bit",
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        seed=opts.seed,
    )
    trainer = SFTTrainer(
        model=load_model(opts),
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model(opts.out)


if __name__ == "__main__":
    main()
