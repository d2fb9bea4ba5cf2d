"""LoRA on Qwen3-8B for the parcel desk. Short answers, no reasoning wanted."""
import json
import pathlib

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen3-8B"
tok = AutoTokenizer.from_pretrained(BASE)


def render(row):
    prompt = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    return {"prompt": prompt, "completion": row["answer"] + "<|im_end|>"}


def main():
    rows = [json.loads(line) for line in pathlib.Path("desk.jsonl").read_text().splitlines()]
    data = Dataset.from_list([render(r) for r in rows]).train_test_split(test_size=0.05, seed=2)
    args = SFTConfig(
        output_dir="outputs/desk",
        num_train_epochs=3,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        max_length=1024,
        completion_only_loss=True,
        bf16=True,
        gradient_checkpointing=True,
        eval_strategy="epoch",
        logging_steps=10,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=BASE,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tok,
        peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("outputs/desk/final")


if __name__ == "__main__":
    main()
