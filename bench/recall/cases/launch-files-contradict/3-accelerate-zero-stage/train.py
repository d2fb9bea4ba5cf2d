# accelerate launch --config_file accelerate.yaml train.py      (8x H100)
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen3-14B"


def make_args():
    return SFTConfig(
        output_dir="runs/q14",
        deepspeed="zero2.json",
        assistant_only_loss=True,
        max_length=4096,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        max_grad_norm=1.0,
        bf16=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=200,
        save_total_limit=2,
        seed=6,
        report_to="none",
    )


def main():
    args = make_args()
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    ds = load_dataset("trl-lib/Capybara")
    trainer = SFTTrainer(
        model=model, args=args, processing_class=tok, train_dataset=ds["train"], eval_dataset=ds["test"]
    )
    trainer.train()
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
