import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

NAME = "Qwen/Qwen2.5-0.5B"
tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME)


def encode(row):
    ids = tokenizer(row["text"] + tokenizer.eos_token, truncation=True, max_length=1024)[
        "input_ids"
    ]
    return {"input_ids": ids, "weight": row["weight"]}


def collate(features):
    longest = max(len(feature["input_ids"]) for feature in features)
    ids = torch.full((len(features), longest), tokenizer.pad_token_id)
    labels = torch.full((len(features), longest), tokenizer.pad_token_id)
    for n, feature in enumerate(features):
        ids[n, : len(feature["input_ids"])] = torch.tensor(feature["input_ids"])
        labels[n, : len(feature["input_ids"])] = torch.tensor(feature["input_ids"])
    weights = torch.tensor([feature.get("weight", 1.0) for feature in features])
    return {"input_ids": ids, "labels": labels, "weights": weights}


rows = load_dataset("json", data_files="train.jsonl", split="train").map(encode)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out", learning_rate=1e-5, bf16=True, remove_unused_columns=False
    ),
    train_dataset=rows,
    data_collator=collate,
)
trainer.train()
