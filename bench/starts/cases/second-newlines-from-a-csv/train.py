from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "models/Qwen2.5-0.5B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(MODEL)
ds = load_dataset("parquet", data_files="train.parquet", split="train")
ds = ds.map(
    lambda r: {
        "prompt": [{"role": "user", "content": r["instruction"]}],
        "completion": [{"role": "assistant", "content": r["response"]}],
    },
    remove_columns=ds.column_names,
)
args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    learning_rate=2e-4,
    num_train_epochs=3,
    warmup_ratio=0.03,
    lr_scheduler_type="cosine",
    logging_steps=10,
    bf16=True,
    max_length=1024,
    report_to="none",
)
SFTTrainer(
    MODEL,
    args,
    train_dataset=ds,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
).train()
