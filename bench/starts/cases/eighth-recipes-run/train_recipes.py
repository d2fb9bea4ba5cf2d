# SFT on our recipe rewrites, Llama-3.1-8B-Instruct + LoRA, TRL
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

train = load_dataset("json", data_files="data/recipes_train.jsonl", split="train")
val = load_dataset("json", data_files="data/recipes_val.jsonl", split="train")

cfg = SFTConfig(
    output_dir="outputs/recipes-llama",
    num_train_epochs=6,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_steps=10,
    bf16=True,
    max_length=1024,
    assistant_only_loss=False,
    completion_only_loss=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=30,
    save_strategy="steps",
    save_steps=30,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    greater_is_better=True,
    seed=7,
    report_to="none",
    model_init_kwargs={"dtype": "bfloat16"},
)

trainer = SFTTrainer(
    model="meta-llama/Llama-3.1-8B-Instruct",
    args=cfg,
    train_dataset=train,
    eval_dataset=val,
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_state()
trainer.save_model("outputs/recipes-llama")
print(trainer.evaluate())  # best model is loaded here
