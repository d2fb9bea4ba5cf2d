import argparse

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--out")
opts = parser.parse_args()

conversations = load_dataset("json", data_files=opts.data, split="train")
settings = SFTConfig(
    output_dir=opts.out,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    num_train_epochs=2,
    bf16=True,
    gradient_checkpointing=True,
    max_length=4096,
    assistant_only_loss=False,
    logging_steps=10,
    save_strategy="epoch",
    report_to="none",
)
SFTTrainer("google/gemma-3-1b-it", args=settings, train_dataset=conversations).train()
