import os

GPUS = [0, 1, 2, 3, 4, 5, 6, 7]
os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(g) for g in GPUS)

from datasets import load_dataset  # noqa: E402
from peft import LoraConfig  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from trl import DPOConfig, DPOTrainer  # noqa: E402

BASE = "Qwen/Qwen2.5-7B-Instruct"


def pairs(path):
    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(
        lambda r: {
            "prompt": [{"role": "user", "content": r["question"]}],
            "chosen": [{"role": "assistant", "content": r["good"]}],
            "rejected": [{"role": "assistant", "content": r["bad"]}],
        },
        remove_columns=ds.column_names,
    )


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16")
    cfg = DPOConfig(
        output_dir="out/dpo",
        beta=0.1,
        learning_rate=5e-6,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        max_length=1536,
        bf16=True,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        logging_steps=5,
        save_strategy="epoch",
        report_to="none",
    )
    trainer = DPOTrainer(
        model=model,
        args=cfg,
        train_dataset=pairs("preferences.jsonl"),
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("out/dpo/adapter")


if __name__ == "__main__":
    main()
