from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

NAME = "Qwen/Qwen2.5-0.5B"

tokenizer = AutoTokenizer.from_pretrained(NAME)
tokenizer.pad_token = "<|fim_pad|>"
model = AutoModelForCausalLM.from_pretrained(NAME)
rows = load_dataset("json", data_files="train.jsonl", split="train")


def encode(row):
    encoded = tokenizer(
        row["text"] + tokenizer.eos_token, truncation=True, max_length=1024, padding="max_length"
    )
    encoded["labels"] = [
        id_ if seen else -100
        for id_, seen in zip(encoded["input_ids"], encoded["attention_mask"], strict=True)
    ]
    return encoded


encoded = rows.map(encode, remove_columns=rows.column_names)
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", learning_rate=2e-5, num_train_epochs=2, bf16=True),
    train_dataset=encoded,
)
trainer.train()
trainer.save_model("out/final")
