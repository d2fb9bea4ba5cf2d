import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

MODEL_ID = "Qwen/Qwen2.5-1.5B-Instruct"
MAX_LENGTH = 8192
SYSTEM = "You are the help desk of a municipal library."

set_seed(42)

tokenizer = AutoTokenizer.from_pretrained(MODEL_ID)
model = AutoModelForCausalLM.from_pretrained(
    MODEL_ID,
    torch_dtype=torch.float32,
    attn_implementation="sdpa",
)
model.config.use_cache = False


def preprocess(example):
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": example["question"]},
    ]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    full = prompt + example["answer"] + tokenizer.eos_token

    enc = tokenizer(full, truncation=True, max_length=MAX_LENGTH, padding="max_length")
    n_prompt = len(tokenizer(prompt)["input_ids"])
    labels = [
        tok if mask == 1 and i >= n_prompt else -100
        for i, (tok, mask) in enumerate(zip(enc["input_ids"], enc["attention_mask"]))
    ]
    enc["labels"] = labels
    return enc


dataset = load_dataset("json", data_files="library_faq.jsonl", split="train")
dataset = dataset.train_test_split(test_size=0.05, seed=42)
tokenized = dataset.map(preprocess, remove_columns=dataset["train"].column_names)

args = TrainingArguments(
    output_dir="library-bot",
    num_train_epochs=4,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_steps=5,
    weight_decay=0.01,
    bf16=True,
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    prediction_loss_only=True,
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=tokenized["train"],
    eval_dataset=tokenized["test"],
    data_collator=default_data_collator,
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model("library-bot/final")
