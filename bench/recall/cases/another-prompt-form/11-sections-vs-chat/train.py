import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
PROMPT = (
    "Below is a question about our products.\n\n"
    "### Instruction:\n{question}\n\n### Response:\n"
)


def shape(row):
    return {"prompt": PROMPT.format(question=row["question"]), "completion": row["answer"]}


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("json", data_files="data/products.jsonl", split="train")
    rows = rows.map(shape, remove_columns=rows.column_names).train_test_split(test_size=0.05, seed=4)
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
            eval_strategy="epoch",
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("runs/products/adapter")


if __name__ == "__main__":
    main()
