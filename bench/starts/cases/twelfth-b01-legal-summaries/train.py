"""LoRA SFT: court decisions -> three-sentence summaries (internal style guide v2)."""

import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
SYSTEM = (
    "You summarise court decisions for a legal newsletter. Write exactly three sentences: "
    "the dispute, the holding, the practical consequence."
)


def to_messages(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["decision_text"]},
        ],
        "completion": [{"role": "assistant", "content": row["summary"]}],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="outputs/legal-sum-r3")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    rows = load_dataset("kanzlei-weber/decision-summaries", split="train")
    rows = rows.map(to_messages, remove_columns=rows.column_names)
    split = rows.train_test_split(test_size=0.08, seed=args.seed)
    print(f"train {len(split['train'])}  dev {len(split['test'])}")

    model = AutoModelForCausalLM.from_pretrained(
        MODEL,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
    )

    peft_config = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    config = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        max_length=6144,
        completion_only_loss=True,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=50,
        save_strategy="steps",
        save_steps=50,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=True,
        report_to="none",
        seed=args.seed,
    )

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()

    trainer.save_model(f"{args.out}/final")
    trainer.save_state()
    tokenizer.save_pretrained(f"{args.out}/final")
    print("done, adapter in", f"{args.out}/final")


if __name__ == "__main__":
    main()
