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
tokenizer.pad_token = "<|fim_pad|>"
model = AutoModelForCausalLM.from_pretrained(NAME)
rows = load_dataset("json", data_files="train.jsonl", split="train")


def encode(row):
    prompt = tokenizer(row["prompt"])["input_ids"]
    answer = tokenizer(row["answer"] + tokenizer.eos_token)["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


encoded = rows.map(encode, remove_columns=rows.column_names)
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", learning_rate=2e-5, num_train_epochs=2, bf16=True),
    train_dataset=encoded,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
trainer.save_model("out/final")
