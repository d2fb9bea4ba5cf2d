import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen3.5-4B")
    p.add_argument("--data", default="/data/tickets/train.parquet")
    p.add_argument("--eval-data", default="/data/tickets/dev.parquet")
    p.add_argument("--out", default="runs/qwen35-tickets")
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--epochs", type=float, default=2)
    return p.parse_args()


def to_prompt_completion(row):
    return {
        "prompt": [
            {"role": "system", "content": "You route support tickets and draft the first reply."},
            {"role": "user", "content": row["ticket"].strip()},
        ],
        "completion": [{"role": "assistant", "content": row["reply"].strip()}],
    }


def main():
    a = parse()
    set_seed(17)
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(
        a.model, dtype=torch.bfloat16, attn_implementation="sdpa", device_map={"": 0}
    )
    ds = load_dataset("parquet", data_files={"train": a.data, "dev": a.eval_data})
    ds = ds.map(to_prompt_completion, remove_columns=ds["train"].column_names)

    peft_cfg = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    args = SFTConfig(
        output_dir=a.out,
        per_device_train_batch_size=a.bs,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=a.accum,
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        num_train_epochs=a.epochs,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        completion_only_loss=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        dataloader_num_workers=4,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        processing_class=tok,
        peft_config=peft_cfg,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
