import os

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

os.environ.setdefault("WANDB_PROJECT", "contracts-sft")

MODEL = "Qwen/Qwen2.5-7B-Instruct"

# rows: {"prompt": [system, user], "completion": [assistant]}
ds = load_dataset("json", data_files={"train": "data/train.jsonl", "val": "data/val.jsonl"})
tok = AutoTokenizer.from_pretrained(MODEL)

model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
model.config.use_cache = False

cfg = SFTConfig(
    output_dir="ckpt",
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_steps=40,
    num_train_epochs=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    max_length=8192,
    completion_only_loss=True,
    bf16=True,
    gradient_checkpointing=True,
    deepspeed="ds_zero2.json",
    optim="adamw_torch_fused",
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="wandb",
)

trainer = SFTTrainer(
    model=model,
    args=cfg,
    train_dataset=ds["train"],
    eval_dataset=ds["val"],
    processing_class=tok,
)
trainer.train()

if trainer.accelerator.is_main_process:
    print(trainer.evaluate())

trainer.model.config.use_cache = True
trainer.save_model("final")
tok.save_pretrained("final")
