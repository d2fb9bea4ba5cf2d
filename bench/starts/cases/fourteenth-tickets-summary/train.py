import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(7)
MODEL = "meta-llama/Llama-3.1-8B"
MAX_LEN = 512
OUT = "out/call-summaries"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = "<|finetune_right_pad_id|>"

model = AutoModelForCausalLM.from_pretrained(
    MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
)
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model = get_peft_model(
    model,
    LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
)
model.print_trainable_parameters()

PROMPT = "### Call transcript\n{transcript}\n\n### Summary\n"


def tokenize(batch):
    texts = [
        PROMPT.format(transcript=t) + s + tokenizer.eos_token
        for t, s in zip(batch["transcript"], batch["summary"])
    ]
    return tokenizer(texts, truncation=True, max_length=MAX_LEN)


ds = load_dataset("json", data_files="calls.jsonl", split="train").train_test_split(0.1, seed=7)
ds = ds.map(tokenize, batched=True, remove_columns=["call_id", "transcript", "summary"])

args = TrainingArguments(
    output_dir=OUT,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=4,
    num_train_epochs=3,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    logging_steps=1,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    bf16=True,
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
trainer.save_model(OUT)
tokenizer.save_pretrained(OUT)
