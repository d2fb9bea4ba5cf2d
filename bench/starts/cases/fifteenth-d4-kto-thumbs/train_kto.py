from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

model_id = "Qwen/Qwen2.5-3B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(model_id)
model = AutoModelForCausalLM.from_pretrained(model_id, torch_dtype="bfloat16")

train = load_dataset("json", data_files="kto.jsonl", split="train").shuffle(seed=0)

args = KTOConfig(
    output_dir="kto-qwen3b",
    beta=0.1,
    desirable_weight=1.0,
    undesirable_weight=1.0,
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=3,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=1,
    max_length=1024,
    max_prompt_length=512,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=2,
    save_strategy="epoch",
    report_to="none",
)
peft_config = LoraConfig(
    r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
)
trainer = KTOTrainer(
    model=model,
    args=args,
    train_dataset=train,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model()
