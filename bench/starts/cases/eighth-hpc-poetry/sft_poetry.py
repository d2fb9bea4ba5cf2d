import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--data", required=True)
parser.add_argument("--output", required=True)
parser.add_argument("--epochs", type=float, default=3)
cli = parser.parse_args()

local_rank = int(os.environ.get("LOCAL_RANK", 0))
torch.cuda.set_device(local_rank)

dataset = load_dataset("json", data_files=cli.data, split="train")  # columns: prompt, completion (lists of messages)
split = dataset.train_test_split(test_size=0.05, seed=11)

config = SFTConfig(
    output_dir=cli.output,
    num_train_epochs=cli.epochs,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    max_length=1024,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=10,
    report_to="none",
    model_init_kwargs={"dtype": "bfloat16"},
)
peft_config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")

trainer = SFTTrainer(
    model=cli.model,
    args=config,
    train_dataset=split["train"],
    eval_dataset=split["test"],
    peft_config=peft_config,
)
trainer.train()
trainer.save_model(cli.output)
