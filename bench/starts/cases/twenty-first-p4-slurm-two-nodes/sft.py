import argparse
import os
import socket

import torch
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    return p.parse_args()


def main():
    args = parse()
    print(
        f"host {socket.gethostname()} rank {os.environ['RANK']}/{os.environ['WORLD_SIZE']} "
        f"local {os.environ['LOCAL_RANK']} master {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        flush=True,
    )
    data = load_dataset("json", data_files=args.data, split="train").train_test_split(test_size=500, seed=3)
    config = SFTConfig(
        output_dir=args.out,
        max_length=4096,
        packing=False,
        assistant_only_loss=False,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        num_train_epochs=2,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        deepspeed="zero3.json",
        model_init_kwargs={"dtype": torch.bfloat16, "attn_implementation": "flash_attention_2"},
        report_to="none",
        seed=3,
    )
    trainer = SFTTrainer(model=args.model, args=config, train_dataset=data["train"], eval_dataset=data["test"])
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
