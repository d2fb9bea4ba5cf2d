import csv

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"


def read_feedback(path):
    rows = []
    with open(path, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if not line["reply"].strip():
                continue
            rows.append(
                {
                    "prompt": [{"role": "user", "content": line["question"]}],
                    "completion": [{"role": "assistant", "content": line["reply"]}],
                    "label": bool(line["thumb_up"]),
                }
            )
    return Dataset.from_list(rows)


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(
        BASE, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )

    dataset = read_feedback("feedback.csv").shuffle(seed=0)
    print(dataset)

    args = KTOConfig(
        output_dir="kto-out",
        num_train_epochs=3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        beta=0.1,
        max_length=1024,
        max_prompt_length=512,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=3,
        save_strategy="epoch",
        report_to="none",
        seed=0,
    )
    trainer = KTOTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.train()
    trainer.save_model("kto-out/final")


if __name__ == "__main__":
    main()
