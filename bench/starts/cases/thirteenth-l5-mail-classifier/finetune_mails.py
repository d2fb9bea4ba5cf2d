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

from finetune_mails_prompt import PROMPT

set_seed(17)
BASE = "unsloth/Llama-3.2-1B"

tokenizer = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16)
model = get_peft_model(
    model,
    LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, task_type="CAUSAL_LM",
               target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
)
model.print_trainable_parameters()


def tokenize(row):
    text = PROMPT.format(mail=row["mail"]) + " " + row["label"] + tokenizer.eos_token
    return tokenizer(text, truncation=True, max_length=1024)


ds = load_dataset("csv", data_files={"train": "data/train.csv"})["train"]
ds = ds.map(tokenize, remove_columns=ds.column_names)

args = TrainingArguments(
    output_dir="out-mails",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=6,
    learning_rate=2e-4,
    lr_scheduler_type="linear",
    bf16=True,
    logging_steps=10,
    save_strategy="epoch",
    save_total_limit=1,
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=ds,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
model.save_pretrained("out-mails/final")
tokenizer.save_pretrained("out-mails/final")
