from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

NAME = "Qwen/Qwen2.5-0.5B"

tokenizer = AutoTokenizer.from_pretrained(NAME)
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(NAME)
rows = load_dataset("json", data_files="train.jsonl", split="train")


def encode(row):
    return tokenizer(row["text"] + tokenizer.eos_token, truncation=True, max_length=1024)


encoded = rows.map(encode, remove_columns=rows.column_names)
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", learning_rate=2e-5, num_train_epochs=2, bf16=True),
    train_dataset=encoded,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
trainer.save_model("out/final")
