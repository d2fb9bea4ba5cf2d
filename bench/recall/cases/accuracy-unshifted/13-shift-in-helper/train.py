import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from metrics import first_choice, token_accuracy

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(shape, remove_columns=ds["train"].column_names)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        args=SFTConfig(
            output_dir="runs/gsm8k",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            max_length=1024,
            bf16=True,
            eval_strategy="epoch",
            logging_steps=20,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
        compute_metrics=token_accuracy,
        preprocess_logits_for_metrics=first_choice,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("runs/gsm8k/adapter")


if __name__ == "__main__":
    main()
