from peft import LoraConfig
from prepare import get_rows
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"

config = SFTConfig(
    output_dir="desk-adapter",
    num_train_epochs=3,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=2e-4,
    warmup_steps=0.05,
    lr_scheduler_type="cosine",
    max_length=1024,
    bf16=True,
    logging_steps=5,
    report_to="none",
)
trainer = SFTTrainer(
    model=BASE,
    args=config,
    train_dataset=get_rows("shop.jsonl"),
    processing_class=AutoTokenizer.from_pretrained(BASE),
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("desk-adapter")
