"""Make a chat model of a base model with a few thousand dialogues."""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer, clone_chat_template


def prepare(name, template_from):
    tokenizer = AutoTokenizer.from_pretrained(name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
    model, tokenizer, added = clone_chat_template(model, tokenizer, template_from)
    print(f"{len(added)} tokens came with the template; eos is now {tokenizer.eos_token}")
    return model, tokenizer


def split_last(row):
    return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="meta-llama/Llama-3.2-3B")
    ap.add_argument("--template_from", default="Qwen/Qwen2.5-0.5B-Instruct")
    ap.add_argument("--out", default="out/chat")
    args = ap.parse_args()

    model, tokenizer = prepare(args.model, args.template_from)
    ds = load_dataset("json", data_files="data/dialogues.jsonl", split="train")
    ds = ds.map(split_last, remove_columns=ds.column_names)

    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=ds,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
        args=SFTConfig(
            output_dir=args.out,
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=2048,
            warmup_steps=30,
            lr_scheduler_type="cosine",
            bf16=True,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
