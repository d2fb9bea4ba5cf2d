import argparse

import torch
from callbacks import EvalSamplesCallback
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

PROBES = [
    "What is the notice period in a fixed-term lease?",
    "Can my landlord enter the flat without telling me first?",
    "Who pays for a broken boiler?",
    "My deposit was not returned after six weeks and the agency does not answer my letters. What can I do?",
]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--data_dir", default="data/tenancy")
    ap.add_argument("--output_dir", default="runs/tenancy")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model, padding_side="right")
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    ds = load_dataset(
        "json",
        data_files={"train": f"{a.data_dir}/train.jsonl", "eval": f"{a.data_dir}/eval.jsonl"},
    )
    ds = ds.map(
        lambda r: {
            "prompt": [{"role": "user", "content": r["question"]}],
            "completion": [{"role": "assistant", "content": r["answer"]}],
        },
        remove_columns=["question", "answer"],
    )

    cfg = SFTConfig(
        output_dir=a.output_dir,
        learning_rate=1e-4,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        warmup_steps=40,
        lr_scheduler_type="cosine",
        bf16=True,
        gradient_checkpointing=False,
        max_length=1024,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        logging_steps=10,
        seed=3,
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["eval"],
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[EvalSamplesCallback(PROBES, f"{a.output_dir}/samples")],
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
