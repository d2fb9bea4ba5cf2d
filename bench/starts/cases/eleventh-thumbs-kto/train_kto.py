import csv

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

MODEL = "Qwen/Qwen2.5-7B-Instruct"


def load_feedback(path):
    rows = []
    with open(path, newline="", encoding="utf-8") as f:
        for r in csv.DictReader(f):
            if not r["answer"].strip():
                continue
            rows.append(
                {
                    "prompt": [{"role": "user", "content": r["question"]}],
                    "completion": [{"role": "assistant", "content": r["answer"]}],
                    "label": bool(r["thumbs_up"]),
                }
            )
    return Dataset.from_list(rows).shuffle(seed=42)


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)

    dataset = load_feedback("feedback.csv")
    print(dataset)

    args = KTOConfig(
        output_dir="out-kto",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        learning_rate=5e-6,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        beta=0.1,
        desirable_weight=1.0,
        undesirable_weight=1.0,
        max_length=1024,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        save_strategy="epoch",
        report_to="none",
        seed=42,
    )
    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    trainer = KTOTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model("out-kto/final")
    tokenizer.save_pretrained("out-kto/final")


if __name__ == "__main__":
    main()
