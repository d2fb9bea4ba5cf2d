import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def to_prompt_completion(row):
    return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}


def main():
    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)

    data = load_dataset("HuggingFaceH4/no_robots")
    data = data.map(to_prompt_completion, remove_columns=data["train"].column_names)

    args = SFTConfig(
        output_dir="out/qwen15-norobots",
        num_train_epochs=2,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        learning_rate=5e-4,
        lr_scheduler_type="cosine",
        warmup_steps=60,
        weight_decay=0.01,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_strategy="steps",
        save_steps=200,
        save_total_limit=2,
        seed=21,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=data["train"],
        eval_dataset=data["test"],
    )
    trainer.train()
    trainer.save_model(args.output_dir)
    tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
