import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sft_model", default="out/sft/final")
    ap.add_argument("--pairs", default="pairs.jsonl")
    ap.add_argument("--beta", type=float, default=0.1)
    ap.add_argument("--out", default="out/dpo")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.sft_model)
    model = AutoModelForCausalLM.from_pretrained(a.sft_model, dtype="float32")
    # columns: prompt, chosen, rejected (lists of messages)
    data = load_dataset("json", data_files=a.pairs, split="train").train_test_split(test_size=0.05, seed=10)

    cfg = DPOConfig(
        output_dir=a.out,
        beta=a.beta,
        learning_rate=5e-7,
        num_train_epochs=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=16,
        max_length=1536,
        bf16=True,
        gradient_checkpointing=True,
        warmup_steps=30,
        lr_scheduler_type="cosine",
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        save_total_limit=2,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        ref_model=model,
        args=cfg,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
