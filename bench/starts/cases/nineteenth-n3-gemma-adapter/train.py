# SFT of gemma 3 4b on our clause rewriting set
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "google/gemma-3-4b-it"

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForImageTextToText.from_pretrained(
    BASE, dtype=torch.bfloat16, attn_implementation="eager"
)

ds = load_dataset("json", data_files={"train": "clauses_train.jsonl", "test": "clauses_test.jsonl"})


def to_pc(ex):
    return {
        "prompt": [{"role": "user", "content": "Rewrite in plain English:\n\n" + ex["clause"]}],
        "completion": [{"role": "assistant", "content": ex["plain"]}],
    }


ds = ds.map(to_pc, remove_columns=["clause", "plain"])

lora = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    exclude_modules=r".*vision_tower.*",
    task_type="CAUSAL_LM",
)

cfg = SFTConfig(
    output_dir="gemma3-legal-lora",
    max_length=2048,
    num_train_epochs=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=100,
    save_strategy="epoch",
    completion_only_loss=True,
    report_to="none",
)

trainer = SFTTrainer(
    model=model,
    args=cfg,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    processing_class=tok,
    peft_config=lora,
)
trainer.train()
trainer.save_model()
