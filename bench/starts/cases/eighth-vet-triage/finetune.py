"""LoRA for triage of messages to a veterinary practice (urgent / today / appointment / advice)."""
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-3B-Instruct"
OUT = "outputs/vet-triage-lora"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
train = load_dataset("json", data_files="data/triage_train.jsonl", split="train")
held = load_dataset("json", data_files="data/triage_eval.jsonl", split="train")

args = SFTConfig(
    output_dir=OUT,
    num_train_epochs=3,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=2,
    learning_rate=2e-4,
    warmup_ratio=0.05,
    lr_scheduler_type="cosine",
    bf16=True,
    max_length=1024,
    gradient_checkpointing=True,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=10,
    report_to="none",
)
trainer = SFTTrainer(
    model=MODEL,
    args=args,
    train_dataset=train,
    eval_dataset=held,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model(OUT)
tokenizer.save_pretrained(OUT)
# last lines of the log: {'train_loss': 0.4127, 'epoch': 3.0}, eval_loss 0.437
