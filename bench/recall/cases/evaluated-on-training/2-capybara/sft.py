import argparse

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--dataset", default="trl-lib/Capybara")
    p.add_argument("--output", default="out/everyday")
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


def main():
    args = get_args()
    train_ds = load_dataset(args.dataset, split="train")
    eval_ds = load_dataset(args.dataset, split="train[:5%]")
    train_ds = train_ds.select_columns(["messages"]).shuffle(seed=0)
    eval_ds = eval_ds.select_columns(["messages"])

    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(args.model, dtype="bfloat16"),
        args=SFTConfig(
            output_dir=args.output,
            learning_rate=args.lr,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            max_length=2048,
            bf16=True,
            gradient_checkpointing=True,
            warmup_steps=20,
            lr_scheduler_type="cosine",
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=50,
            save_steps=50,
            save_total_limit=3,
            report_to="none",
        ),
        train_dataset=train_ds,
        eval_dataset=eval_ds,
        processing_class=AutoTokenizer.from_pretrained(args.model),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
