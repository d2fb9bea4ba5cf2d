from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

checkpoint = "Qwen/Qwen2.5-0.5B"
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
model = AutoModelForCausalLM.from_pretrained(checkpoint)


def preprocess(examples):
    texts = [
        f"Question: {q}\nAnswer: {a}{tokenizer.eos_token}"
        for q, a in zip(examples["question"], examples["answer"])
    ]
    enc = tokenizer(texts, max_length=1024, padding="max_length", truncation=True)
    enc["labels"] = enc["input_ids"].copy()
    return enc


raw = load_dataset("json", data_files={"train": "qa_train.jsonl"})
tokenized = raw.map(preprocess, batched=True, remove_columns=raw["train"].column_names)

args = TrainingArguments(
    output_dir="qa-out",
    learning_rate=3e-5,
    per_device_train_batch_size=8,
    num_train_epochs=4,
    logging_steps=10,
    bf16=True,
    save_strategy="epoch",
    report_to="none",
)

trainer = Trainer(model=model, args=args, train_dataset=tokenized["train"])
trainer.train()
trainer.save_model("qa-out/final")
tokenizer.save_pretrained("qa-out/final")
