from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer

SFT = "work/sft-merged"

tok = AutoTokenizer.from_pretrained(SFT)
ds = load_dataset("json", data_files="data/prefs.jsonl", split="train").train_test_split(0.05, seed=1)

cfg = DPOConfig(
    output_dir="work/dpo-lora",
    model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "sdpa"},
    beta=0.1,
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=1,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=16,
    gradient_checkpointing=True,
    max_length=2048,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=100,
    report_to="none",
)
trainer = DPOTrainer(
    model=SFT,
    args=cfg,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    processing_class=tok,
    peft_config=LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    ),
)
trainer.train()
trainer.save_model("work/dpo-lora")
tok.save_pretrained("work/dpo-lora")
