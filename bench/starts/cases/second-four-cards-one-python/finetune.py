import argparse

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

p = argparse.ArgumentParser()
p.add_argument("--model", default="Qwen/Qwen2.5-3B")
p.add_argument("--data", default="data/train.jsonl")
p.add_argument("--bs", type=int, default=4)
a = p.parse_args()
set_seed(1)

tok = AutoTokenizer.from_pretrained(a.model)


def prep(r):
    head = tok.apply_chat_template(
        [{"role": "user", "content": r["q"]}], add_generation_prompt=True, return_dict=False
    )
    tail = tok(r["a"] + tok.eos_token).input_ids
    return {"input_ids": (head + tail)[:2048], "labels": ([-100] * len(head) + tail)[:2048]}


ds = load_dataset("json", data_files=a.data, split="train")
ds = ds.map(prep, remove_columns=ds.column_names)
model = AutoModelForCausalLM.from_pretrained(a.model, torch_dtype="bfloat16")
Trainer(
    model,
    TrainingArguments(
        "out",
        per_device_train_batch_size=a.bs,
        gradient_checkpointing=True,
        learning_rate=1e-5,
        num_train_epochs=2,
        bf16=True,
        optim="adafactor",
        logging_steps=10,
        save_strategy="epoch",
    ),
    train_dataset=ds,
    data_collator=DataCollatorForSeq2Seq(tok),
).train()
