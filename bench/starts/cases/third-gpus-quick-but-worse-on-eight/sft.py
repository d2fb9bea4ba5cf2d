from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-7B-Instruct"
ds = load_dataset("json", data_files={"train": "sql_train.jsonl", "eval": "sql_eval.jsonl"})
args = SFTConfig(
    output_dir="run",
    num_train_epochs=1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=8,
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_steps=5,
    logging_steps=2,
    eval_strategy="epoch",
    max_length=2048,
    bf16=True,
    completion_only_loss=True,
    gradient_checkpointing=True,
    deepspeed="ds_zero1.json",
    model_init_kwargs={"dtype": "bfloat16"},
    seed=7,
)
trainer = SFTTrainer(
    model=MODEL,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["eval"],
    processing_class=AutoTokenizer.from_pretrained(MODEL),
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
