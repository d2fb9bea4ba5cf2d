import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from selection import best_by_accuracy, score, top_tokens

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    train = load_dataset("openai/gsm8k", "main", split="train")
    parts = train.map(shape, remove_columns=train.column_names).train_test_split(test_size=0.05, seed=10)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        args=SFTConfig(
            output_dir="runs/gsm8k",
            learning_rate=1e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            warmup_steps=30,
            max_length=1024,
            bf16=True,
            logging_steps=20,
            report_to="none",
            **best_by_accuracy(),
        ),
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tok,
        compute_metrics=score,
        preprocess_logits_for_metrics=top_tokens,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("runs/gsm8k/best")


if __name__ == "__main__":
    main()
