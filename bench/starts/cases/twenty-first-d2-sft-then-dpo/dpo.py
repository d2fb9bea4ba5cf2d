import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
SFT = "out/sft"

tokenizer = AutoTokenizer.from_pretrained(SFT)
base = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map={"": 0})
model = PeftModel.from_pretrained(base, SFT, is_trainable=True)
model.print_trainable_parameters()

args = DPOConfig(
    output_dir="out/dpo",
    beta=0.1,
    learning_rate=5e-6,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    max_prompt_length=1024,
    max_length=2048,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=5,
    save_strategy="epoch",
    report_to="none",
)
trainer = DPOTrainer(
    model=model,
    ref_model=None,
    args=args,
    train_dataset=load_dataset("json", data_files="pairs.jsonl", split="train"),
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("out/dpo")
