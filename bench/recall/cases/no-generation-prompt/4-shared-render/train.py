import torch
from chatfmt import render
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL, OUT = "Qwen/Qwen2.5-1.5B-Instruct", "out/allergens"

tok = AutoTokenizer.from_pretrained(MODEL)
ds = load_dataset("json", data_files={s: f"data/{s}.jsonl" for s in ("train", "dev")})
ds = ds.map(lambda r: {"text": render(tok, r)}, remove_columns=["label", "allergens"])
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16),
    processing_class=tok,
    train_dataset=ds["train"],
    eval_dataset=ds["dev"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        OUT,
        learning_rate=1e-4,
        num_train_epochs=2,
        per_device_train_batch_size=16,
        warmup_steps=30,
        bf16=True,
        max_length=1024,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=10,
    ),
)
trainer.train()
trainer.save_model(OUT)
tok.save_pretrained(OUT)
