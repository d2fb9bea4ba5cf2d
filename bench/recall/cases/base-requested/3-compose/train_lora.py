import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
OUT = "runs/mistral-claims-lora"


def chat(row):
    return {
        "prompt": [{"role": "user", "content": "Assess this claim:\n" + row["claim"]}],
        "completion": [{"role": "assistant", "content": row["assessment"]}],
    }


if __name__ == "__main__":
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = tok.unk_token
    ds = load_dataset("json", data_files={"train": "claims_train.jsonl", "dev": "claims_dev.jsonl"})
    ds = ds.map(chat, remove_columns=["claim", "assessment"])
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=SFTConfig(
            OUT,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            warmup_steps=30,
            max_length=2048,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
        ),
    )
    trainer.train()
    trainer.save_model(OUT)
