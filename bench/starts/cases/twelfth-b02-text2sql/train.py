import json
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

BASE = "Qwen/Qwen2.5-Coder-7B-Instruct"
OUT = "runs/sql-r16"
SYS = "Translate the question into one SQLite query for the given schema."

tok = AutoTokenizer.from_pretrained(BASE)


def load(path):
    with open(path) as f:
        return Dataset.from_list([json.loads(l) for l in f])


def encode(ex):
    msgs = [
        {"role": "system", "content": SYS},
        {"role": "user", "content": f"{ex['schema']}\n\n{ex['question']}"},
    ]
    prompt = tok.apply_chat_template(msgs, add_generation_prompt=True, tokenize=False)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(ex["sql"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (p + a)[:2048]
    labels = ([-100] * len(p) + a)[:2048]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


train_ds = load("data/train.jsonl")
train_ds = train_ds.map(encode, remove_columns=train_ds.column_names)
dev_ds = load("data/dev.jsonl")
dev_ds = dev_ds.map(encode, remove_columns=dev_ds.column_names)

model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16)
model.config.use_cache = False
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

args = TrainingArguments(
    output_dir=OUT,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    num_train_epochs=3,
    bf16=True,
    logging_steps=20,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train_ds,
    eval_dataset=dev_ds,
    data_collator=DataCollatorForSeq2Seq(tok, padding=True),
)
trainer.train()
model.save_pretrained(f"{OUT}/adapter")
tok.save_pretrained(f"{OUT}/adapter")
