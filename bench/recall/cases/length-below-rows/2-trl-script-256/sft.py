import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen3-4B"

ds = load_dataset("json", data_files="notes.jsonl", split="train")
ds = ds.train_test_split(test_size=0.15, seed=4)

tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

config = SFTConfig(
    output_dir="out/notes",
    max_length=256,
    assistant_only_loss=True,
    num_train_epochs=3,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_steps=2,
    bf16=True,
    logging_steps=1,
    eval_strategy="epoch",
    save_strategy="epoch",
    seed=4,
    report_to="none",
)

trainer = SFTTrainer(
    model=model,
    args=config,
    processing_class=tok,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("out/notes/final")
