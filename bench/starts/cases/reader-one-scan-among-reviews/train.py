from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

reviews = load_dataset("json", data_files="reviews.jsonl", split="train")

args = SFTConfig(
    output_dir="reviews-qlora",
    max_length=None,
    packing=False,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    learning_rate=2e-4,
    num_train_epochs=1,
    logging_steps=10,
    bf16=True,
)
trainer = SFTTrainer(
    model="Qwen/Qwen2.5-7B-Instruct",
    args=args,
    train_dataset=reviews,
    peft_config=LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
