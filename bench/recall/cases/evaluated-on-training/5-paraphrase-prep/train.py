from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"
data = load_dataset("json", data_files={"train": "train.jsonl", "test": "test.jsonl"})
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16"),
    args=SFTConfig(
        output_dir="out/faq", learning_rate=2e-4, num_train_epochs=2, per_device_train_batch_size=4,
        gradient_accumulation_steps=2, max_length=1024, bf16=True, warmup_steps=10, logging_steps=5,
        eval_strategy="epoch", save_strategy="epoch", report_to="none",
    ),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    processing_class=AutoTokenizer.from_pretrained(BASE),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("out/faq/adapter")
