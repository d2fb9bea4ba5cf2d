"""DPO after SFT: medical intake assistant (Qwen2.5-3B-Instruct, adapter from sft.py)."""
import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"
SFT_ADAPTER = "runs/sft-intake/checkpoint-1200"
OUT = "runs/dpo-intake"


def load_pairs(path):
    """intake_pairs.jsonl has history (messages), better, worse."""
    def to_pair(row):
        return {
            "prompt": row["history"],
            "chosen": [{"role": "assistant", "content": row["better"]}],
            "rejected": [{"role": "assistant", "content": row["worse"]}],
        }
    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(to_pair, remove_columns=ds.column_names)


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)

    # go on with the adapter of the SFT stage
    model = PeftModel.from_pretrained(base, SFT_ADAPTER)
    model.print_trainable_parameters()

    pairs = load_pairs("intake_pairs.jsonl").train_test_split(test_size=0.04, seed=5)

    args = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        learning_rate=2e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=50,
        save_steps=100,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(OUT)


if __name__ == "__main__":
    main()
