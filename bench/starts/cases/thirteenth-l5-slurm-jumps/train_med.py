import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--model", default="Qwen/Qwen2.5-14B-Instruct")
parser.add_argument("--lr", type=float, default=1e-4)
a = parser.parse_args()

data = load_dataset("json", data_files=a.data, split="train").shuffle(seed=1)
data = data.train_test_split(test_size=200, seed=1)

config = SFTConfig(
    output_dir=a.out,
    model_init_kwargs={"dtype": torch.bfloat16, "attn_implementation": "flash_attention_2"},
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    learning_rate=a.lr,
    lr_scheduler_type="cosine",
    warmup_steps=40,
    max_length=2048,
    assistant_only_loss=False,
    bf16=True,
    logging_steps=20,
    eval_strategy="steps",
    eval_steps=200,
    save_strategy="steps",
    save_steps=100,
    save_total_limit=2,
    report_to="none",
    disable_tqdm=True,
)

trainer = SFTTrainer(
    model=a.model,
    args=config,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model(a.out + "/final")
