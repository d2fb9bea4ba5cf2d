from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

NAME = "meta-llama/Llama-3.1-8B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(NAME)
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(NAME, dtype="bfloat16")


def encode(row):
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    encoded = tokenizer(text, truncation=True, max_length=2048)
    encoded["labels"] = encoded["input_ids"].copy()
    return encoded


rows = load_dataset("json", data_files="chats.jsonl", split="train")
rows = rows.map(encode, remove_columns=rows.column_names)
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", learning_rate=1e-5, bf16=True),
    train_dataset=rows,
    data_collator=DataCollatorForSeq2Seq(tokenizer),
)
trainer.train()
