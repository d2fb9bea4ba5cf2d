import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

model_id = "Qwen/Qwen2.5-1.5B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(model_id)
model = AutoModelForCausalLM.from_pretrained(model_id, dtype=torch.float32, attn_implementation="sdpa")

ds = load_dataset("json", data_files="traces.jsonl", split="train")
ds = ds.map(
    lambda r: {"prompt": r["messages"][:1], "completion": r["messages"][1:]},
    remove_columns=["messages"],
)
ds = ds.train_test_split(test_size=0.05, seed=1)

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    args=SFTConfig(
        output_dir="qwen-r1-math",
        num_train_epochs=3,
        learning_rate=1e-5,
        warmup_ratio=0.05,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        max_length=4096,
        bf16=True,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    ),
)
trainer.train()
trainer.save_model("qwen-r1-math/final")
