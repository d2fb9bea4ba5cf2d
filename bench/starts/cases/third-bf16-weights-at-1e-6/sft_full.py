import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)


def tokenize(example):
    full = tokenizer.apply_chat_template(example["messages"], return_dict=False)
    prompt = tokenizer.apply_chat_template(
        example["messages"][:-1], add_generation_prompt=True, return_dict=False
    )
    return {"input_ids": full, "labels": [-100] * len(prompt) + full[len(prompt) :]}


data = load_dataset("json", data_files="train.jsonl", split="train")
data = data.map(tokenize, remove_columns=data.column_names)

training_args = TrainingArguments(
    output_dir="qwen-full",
    num_train_epochs=3,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=1e-6,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    weight_decay=0.0,
    bf16=True,
    logging_steps=5,
    save_strategy="epoch",
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=data,
    data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8),
)
trainer.train()
trainer.save_model()
