from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"


def split_last(row):
    return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}


def main():
    rows = load_dataset("json", data_files="shifts.jsonl", split="train")
    rows = rows.map(split_last, remove_columns=["messages"])
    config = SFTConfig(
        output_dir="shift-adapter",
        num_train_epochs=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        max_length=512,
        bf16=True,
        logging_steps=5,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=BASE,
        args=config,
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(BASE),
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("shift-adapter")


if __name__ == "__main__":
    main()
