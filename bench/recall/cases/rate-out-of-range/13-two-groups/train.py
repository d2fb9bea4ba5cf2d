import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from groups import build_optimizer

BASE = "Qwen/Qwen2.5-1.5B"


def shape(row):
    return {"prompt": f"Question: {row['question']}\nAnswer:", "completion": " " + row["answer"]}


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(shape, remove_columns=ds["train"].column_names)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir="runs/math",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            warmup_steps=30,
            max_length=1024,
            bf16=True,
            eval_strategy="epoch",
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
        optimizers=(build_optimizer(model), None),
    )
    trainer.train()
    trainer.save_model("runs/math/adapter")


if __name__ == "__main__":
    main()
