import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from forms import question_form

BASE = "Qwen/Qwen2.5-7B"


def shape(row):
    return {"prompt": question_form(row["question"]), "completion": row["answer"]}


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("json", data_files="data/products.jsonl", split="train")
    rows = rows.map(shape, remove_columns=rows.column_names)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        args=SFTConfig(
            output_dir="runs/products",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            max_length=2048,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows,
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("runs/products/adapter")


if __name__ == "__main__":
    main()
