from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

tokenizer = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.1")
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")
rows = load_dataset("json", data_files="chats.jsonl")["train"]
rows = rows.map(
    lambda row: tokenizer(row["text"] + tokenizer.eos_token, truncation=True, max_length=1024)
)
collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
arguments = TrainingArguments("out", learning_rate=2e-5, per_device_train_batch_size=4)
Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collator).train()
