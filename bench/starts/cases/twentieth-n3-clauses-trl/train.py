import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from settings import Settings

cfg = Settings()
LABELS = ["tenant", "landlord", "shared", "insurer"]

tokenizer = AutoTokenizer.from_pretrained(cfg.model)
model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16)


def to_text(row):
    messages = [
        {"role": "system", "content": "Read the lease and say who pays: " + ", ".join(LABELS) + ". Answer with one word."},
        {"role": "user", "content": f"{row['lease']}\n\nQuestion: {row['question']}"},
        {"role": "assistant", "content": row["answer"]},
    ]
    return {"text": tokenizer.apply_chat_template(messages, tokenize=False)}


train = load_dataset("json", data_files=cfg.train_file, split="train")
train = train.map(to_text, remove_columns=train.column_names)

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=train,
    peft_config=LoraConfig(
        r=cfg.rank, lora_alpha=2 * cfg.rank, lora_dropout=0.05,
        target_modules="all-linear", task_type="CAUSAL_LM",
    ),
    args=SFTConfig(
        output_dir=cfg.out,
        num_train_epochs=cfg.epochs,
        per_device_train_batch_size=cfg.per_device,
        gradient_accumulation_steps=cfg.accumulate,
        learning_rate=cfg.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_length=cfg.max_length,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        save_strategy="epoch",
        report_to="none",
    ),
)
trainer.train()
trainer.save_model(cfg.out)
