import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from pairs import load_pairs

name = "Qwen/Qwen2.5-1.5B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
ref = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)

pairs = load_pairs("comparisons.jsonl").train_test_split(test_size=0.1, seed=3)

trainer = DPOTrainer(
    model=model,
    ref_model=ref,
    args=DPOConfig(
        output_dir="out/dpo-1.5b",
        beta=0.1,
        learning_rate=2e-6,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_length=1024,
        bf16=True,
        gradient_checkpointing=True,
        eval_strategy="steps",
        eval_steps=20,
        logging_steps=5,
        save_strategy="epoch",
        report_to="none",
    ),
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model()
