from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

tokenizer = AutoTokenizer.from_pretrained("model")
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained("model")


def tokenize(row):
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    return tokenizer(text, add_special_tokens=False, truncation=True, max_length=1024)


dataset = load_dataset("json", data_files="chats.jsonl", split="train")
dataset = dataset.map(tokenize, remove_columns=["messages"])

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="outputs",
        per_device_train_batch_size=2,
        num_train_epochs=4,
        learning_rate=2e-5,
        logging_steps=1,
        report_to="none",
    ),
    train_dataset=dataset,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model()
