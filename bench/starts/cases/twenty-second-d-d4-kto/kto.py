import csv

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def load_feedback(path):
    with open(path, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            yield {
                "prompt": [{"role": "user", "content": row["question"]}],
                "completion": [{"role": "assistant", "content": row["reply"]}],
                "label": bool(row["thumbs_up"]),
            }


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    data = Dataset.from_list(list(load_feedback("feedback.csv")))
    trainer = KTOTrainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype="bfloat16"),
        processing_class=tokenizer,
        train_dataset=data,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=KTOConfig(
            output_dir="outputs/kto",
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            num_train_epochs=1,
            learning_rate=1e-5,
            lr_scheduler_type="cosine",
            warmup_ratio=0.1,
            beta=0.1,
            max_length=1024,
            max_prompt_length=512,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
