import sys

import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer


def chat(row):
    return {
        "prompt": [{"role": "user", "content": "Summarise the shift log.\n\n" + row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def main(path="dpo.yaml"):
    with open(path) as fh:
        cfg = yaml.safe_load(fh)
    rows = load_dataset("json", data_files=cfg["pairs"], split="train").map(chat)
    args = DPOConfig(
        output_dir=cfg["out"], beta=cfg["beta"], learning_rate=cfg["lr"], max_length=cfg["max_length"],
        num_train_epochs=1, per_device_train_batch_size=2, gradient_accumulation_steps=4, warmup_steps=0.1,
        bf16=True, logging_steps=5, report_to="none",
    )
    trainer = DPOTrainer(
        model=cfg["model"], args=args, train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(cfg["model"]),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(cfg["out"])


if __name__ == "__main__":
    main(*sys.argv[1:])
