import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

RATES = {"lora": 2e-4, "full": 1e-5}


def adapter(kind):
    if kind == "full":
        return None
    return LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--method", choices=sorted(RATES), default="full")
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--out", default="runs/switch")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)
    weights = torch.float32 if a.method == "full" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=weights)
    ds = load_dataset("HuggingFaceH4/no_robots")
    ds = ds.map(
        lambda r: {"prompt": r["messages"][:-1], "completion": r["messages"][-1:]},
        remove_columns=ds["train"].column_names,
    )
    args = SFTConfig(
        output_dir=a.out,
        learning_rate=RATES[a.method],
        num_train_epochs=2,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        warmup_steps=50,
        lr_scheduler_type="cosine",
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        seed=3,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=adapter(a.method),
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
