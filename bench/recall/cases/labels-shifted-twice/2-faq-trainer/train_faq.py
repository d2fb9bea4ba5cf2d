from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
MAX_LENGTH = 1024

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32")
model.config.use_cache = False

raw = load_dataset("json", data_files={"train": "faq_train.jsonl", "valid": "faq_valid.jsonl"})


def tokenize(row):
    messages = [
        {"role": "user", "content": row["question"]},
        {"role": "assistant", "content": row["answer"]},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    enc = tokenizer(text, add_special_tokens=False, truncation=True, max_length=MAX_LENGTH)
    # next token as the target of every position
    enc["labels"] = enc["input_ids"][1:] + [-100]
    return enc


data = raw.map(tokenize, remove_columns=raw["train"].column_names)

args = TrainingArguments(
    output_dir="out/faq",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    num_train_epochs=2,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_steps=50,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=100,
    save_total_limit=2,
    load_best_model_at_end=True,
    report_to="none",
    seed=7,
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["valid"],
    data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("out/faq/final")
tokenizer.save_pretrained("out/faq/final")
