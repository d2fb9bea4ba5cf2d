import numpy as np
from datasets import load_from_disk
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

NAME = "Qwen/Qwen2.5-0.5B"


def compute_metrics(prediction):
    predicted, labels = prediction.predictions.argmax(-1)[:, :-1], prediction.label_ids[:, 1:]
    kept = labels != -100
    return {"accuracy": (predicted[kept] == labels[kept]).mean()}


trainer = Trainer(
    model=AutoModelForCausalLM.from_pretrained(NAME),
    args=TrainingArguments(
        output_dir="out",
        learning_rate=1e-5,
        eval_strategy="steps",
        eval_steps=100,
        bf16=True,
        eval_accumulation_steps=8,
    ),
    train_dataset=load_from_disk("train"),
    eval_dataset=load_from_disk("eval"),
    data_collator=DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(NAME)),
    compute_metrics=compute_metrics,
)
trainer.train()
