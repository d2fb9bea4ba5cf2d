import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--data", default="data/sql_chat.jsonl", help="one prompt and one completion message list a line")
    ap.add_argument("--out", default="runs/sql")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)
    ds = load_dataset("json", data_files=a.data, split="train").train_test_split(test_size=0.05, seed=0)
    ds = ds.map(
        lambda r: {
            "prompt": [{"role": "user", "content": f"{r['schema']}\n\n{r['question']}"}],
            "completion": [{"role": "assistant", "content": r["sql"]}],
        },
        remove_columns=ds["train"].column_names,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16),
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=SFTConfig(
            a.out, learning_rate=1e-4, num_train_epochs=2, per_device_train_batch_size=4,
            gradient_accumulation_steps=4, warmup_steps=50, bf16=True, max_length=2048,
            eval_strategy="steps", eval_steps=200, save_steps=200, logging_steps=10,
        ),
    )
    trainer.train()
    trainer.save_model(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
