"""SFT of Mistral-7B on our ticket summaries (QLoRA, one A100 40GB)."""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="mistralai/Mistral-7B-Instruct-v0.3")
    p.add_argument("--train", default="/data/tickets/train.jsonl")
    p.add_argument("--dev", default="/data/tickets/dev.jsonl")
    p.add_argument("--out", default="/ckpt/tickets-mistral")
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--epochs", type=float, default=2)
    return p.parse_args()


def to_prompt_completion(row):
    return {
        "prompt": [
            {
                "role": "user",
                "content": "Summarise this support ticket in two sentences.\n\n" + row["ticket"],
            }
        ],
        "completion": [{"role": "assistant", "content": row["summary"]}],
    }


def main():
    args = parse()
    tok = AutoTokenizer.from_pretrained(args.model)
    tok.pad_token = tok.unk_token

    bnb = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        quantization_config=bnb,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": 0},
    )

    ds = load_dataset("json", data_files={"train": args.train, "dev": args.dev})
    ds = ds.map(to_prompt_completion, remove_columns=ds["train"].column_names)
    print(ds)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        bias="none",
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    cfg = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        max_length=1024,
        bf16=True,
        optim="paged_adamw_8bit",
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="steps",
        save_steps=200,
        save_total_limit=2,
        dataloader_num_workers=4,
        report_to="none",
        seed=7,
    )

    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        processing_class=tok,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
