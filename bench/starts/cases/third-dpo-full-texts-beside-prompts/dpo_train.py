from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

MODEL = "./sft-mistral-alpaca"  # own SFT of Mistral-7B-v0.3 in the Alpaca format
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="bfloat16", device_map={"": 0})
pairs = load_dataset(
    "json", data_files="pairs.jsonl", split="train"
)  # columns prompt, chosen, rejected

args = DPOConfig(
    output_dir="dpo-mistral-alpaca",
    beta=0.1,
    learning_rate=2e-5,
    num_train_epochs=5,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    warmup_steps=10,
    lr_scheduler_type="cosine",
    max_length=2048,
    bf16=True,
    logging_steps=5,
    gradient_checkpointing=True,
    report_to="none",
)
trainer = DPOTrainer(
    model=model,
    args=args,
    train_dataset=pairs,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
