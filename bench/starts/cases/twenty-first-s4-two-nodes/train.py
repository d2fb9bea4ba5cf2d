import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

p = argparse.ArgumentParser()
p.add_argument("--data", required=True)
p.add_argument("--out", required=True)
a = p.parse_args()

name = "Qwen/Qwen3-8B"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype="bfloat16", attn_implementation="flash_attention_2")

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=load_dataset("json", data_files=a.data, split="train"),
    args=SFTConfig(
        output_dir=a.out,
        max_length=8192,
        packing=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        num_train_epochs=2,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        logging_steps=5,
        save_steps=500,
        report_to="none",
    ),
)
trainer.train()
trainer.save_model(a.out)
