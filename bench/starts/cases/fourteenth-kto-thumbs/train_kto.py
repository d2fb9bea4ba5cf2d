# KTO on the thumbs of our users (1 = up, -1 = down)
import pandas as pd
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

MODEL = "Qwen/Qwen2.5-7B-Instruct"

df = pd.read_csv("feedback.csv")
df = df.dropna(subset=["question", "reply", "thumb"]).drop_duplicates(["question", "reply"])
print(len(df), "rated answers")


def convert(r):
    return {
        "prompt": [{"role": "user", "content": r["question"]}],
        "completion": [{"role": "assistant", "content": r["reply"]}],
        "label": bool(r["thumb"]),
    }


ds = Dataset.from_pandas(df[["question", "reply", "thumb"]], preserve_index=False)
ds = ds.map(convert, remove_columns=["question", "reply", "thumb"]).shuffle(seed=0)

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa")

cfg = KTOConfig(
    output_dir="kto-out",
    beta=0.1,
    desirable_weight=1.0,
    undesirable_weight=1.0,
    learning_rate=5e-6,
    warmup_ratio=0.1,
    lr_scheduler_type="cosine",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    num_train_epochs=3,
    max_length=1024,
    max_prompt_length=512,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=2,
    save_strategy="epoch",
    report_to="none",
)

trainer = KTOTrainer(
    model=model,
    args=cfg,
    train_dataset=ds,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("kto-out/final")
