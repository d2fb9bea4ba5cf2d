# Stage 2: DPO for the tone of voice, on top of the SFT model
# python train_dpo.py   (A100 80GB, about 50 minutes)
import torch
from datasets import load_dataset
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
SFT = "out/tone-sft"
OUT = "out/tone-dpo"

tokenizer = AutoTokenizer.from_pretrained(BASE)
base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
model = PeftModel.from_pretrained(base, SFT).merge_and_unload()  # start from the SFT model
model.config.use_cache = False

pairs = load_dataset("json", data_files="data/tone_pairs.jsonl", split="train")
pairs = pairs.train_test_split(test_size=40, seed=1)

args = DPOConfig(
    output_dir=OUT,
    beta=0.1,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_steps=6,
    num_train_epochs=2,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    max_length=1280,
    bf16=True,
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)
trainer = DPOTrainer(
    model=model,
    args=args,
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    processing_class=tokenizer,
    peft_config=LoraConfig(r=32, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model(OUT)
tokenizer.save_pretrained(OUT)
