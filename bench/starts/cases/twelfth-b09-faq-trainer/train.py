import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

os.environ["TOKENIZERS_PARALLELISM"] = "false"

model_name = "Qwen/Qwen2.5-1.5B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(model_name)

raw = load_dataset("json", data_files="data/faq.jsonl", split="train")
raw = raw.train_test_split(test_size=0.1, seed=0)


def tokenize(example):
    messages = [
        {"role": "user", "content": example["question"]},
        {"role": "assistant", "content": example["answer"]},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    enc = tokenizer(text, truncation=True, padding="max_length", add_special_tokens=False)
    n_prompt = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    enc["labels"] = [
        tok if mask == 1 and i >= n_prompt else -100
        for i, (tok, mask) in enumerate(zip(enc["input_ids"], enc["attention_mask"]))
    ]
    return enc


tokenized = raw.map(tokenize, remove_columns=["question", "answer"])

model = AutoModelForCausalLM.from_pretrained(
    model_name,
    torch_dtype=torch.bfloat16,
    attn_implementation="flash_attention_2",
)
model.config.use_cache = False
model.enable_input_require_grads()
model = get_peft_model(
    model,
    LoraConfig(
        r=8,
        lora_alpha=16,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        task_type="CAUSAL_LM",
    ),
)
model.print_trainable_parameters()

args = TrainingArguments(
    output_dir="faq-lora",
    per_device_train_batch_size=1,
    per_device_eval_batch_size=1,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    num_train_epochs=5,
    learning_rate=2e-4,
    lr_scheduler_type="linear",
    warmup_steps=10,
    bf16=True,
    logging_steps=5,
    eval_strategy="epoch",
    prediction_loss_only=True,
    save_strategy="epoch",
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=tokenized["train"],
    eval_dataset=tokenized["test"],
    data_collator=default_data_collator,
)
trainer.train()
model.save_pretrained("faq-lora/final")
tokenizer.save_pretrained("faq-lora/final")
