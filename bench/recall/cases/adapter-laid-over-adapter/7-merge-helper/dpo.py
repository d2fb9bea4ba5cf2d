import argparse

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer

from warmstart import starting_point


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--sft", default="out/sft-lora")
    p.add_argument("--out", default="out/dpo-lora")
    a = p.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(a.base)
    model = starting_point(a.base, a.sft)
    model.save_pretrained("out/sft-merged")
    tokenizer.save_pretrained("out/sft-merged")

    pairs = load_dataset("json", data_files="data/pairs.jsonl", split="train")
    pairs = pairs.select_columns(["prompt", "chosen", "rejected"]).train_test_split(test_size=0.05, seed=0)
    trainer = DPOTrainer(
        model=model,
        args=DPOConfig(
            output_dir=a.out,
            beta=0.1,
            learning_rate=5e-6,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            gradient_checkpointing=True,
            max_length=2048,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            eval_strategy="epoch",
            report_to="none",
        ),
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"],
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
