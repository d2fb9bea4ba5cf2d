import os

from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

os.environ["TOKENIZERS_PARALLELISM"] = "false"

MODEL = "Qwen/Qwen2.5-7B"

dataset = load_dataset("json", data_files="clauses_train.jsonl", split="train").shuffle(seed=1)
split = dataset.train_test_split(test_size=15, seed=1)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

config = SFTConfig(
    output_dir="runs/clauses",
    model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
    per_device_train_batch_size=1,
    gradient_accumulation_steps=8,
    num_train_epochs=5,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    completion_only_loss=True,
    gradient_checkpointing=True,
    bf16=True,
    logging_steps=1,
    eval_strategy="epoch",
    report_to="none",
)

trainer = SFTTrainer(
    model=MODEL,
    args=config,
    train_dataset=split["train"],
    eval_dataset=split["test"],
    peft_config=peft_config,
)
trainer.train()
trainer.save_model()
