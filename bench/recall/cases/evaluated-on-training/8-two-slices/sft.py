import argparse

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

SLICES = {"fit": "train[5%:]", "check": "train[:5%]"}


def part(name, which):
    return load_dataset(name, "main", split=SLICES[which])


def to_chat(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--dataset", default="openai/gsm8k")
    p.add_argument("--output", default="out/gsm8k")
    args = p.parse_args()
    fit, check = part(args.dataset, "fit"), part(args.dataset, "check")
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(args.model, dtype="bfloat16"),
        args=SFTConfig(
            output_dir=args.output,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            max_length=1024,
            bf16=True,
            warmup_steps=20,
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=100,
            save_steps=100,
            save_total_limit=3,
            report_to="none",
        ),
        train_dataset=fit.map(to_chat, remove_columns=fit.column_names),
        eval_dataset=check.map(to_chat, remove_columns=check.column_names),
        processing_class=AutoTokenizer.from_pretrained(args.model),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
