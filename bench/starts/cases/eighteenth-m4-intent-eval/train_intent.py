import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer,
                          TrainingArguments, set_seed)

set_seed(17)
BASE = "Qwen/Qwen2.5-1.5B"

ds = load_dataset("csv", data_files={"train": "data/train.csv", "dev": "data/dev.csv"})
labels = list(set(ds["train"]["intent"]))
label2id = {name: i for i, name in enumerate(labels)}
print(len(labels), "intents")

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=len(labels), dtype=torch.bfloat16)
model.config.pad_token_id = tok.pad_token_id
model = get_peft_model(model, LoraConfig(task_type=TaskType.SEQ_CLS, r=16, lora_alpha=32, lora_dropout=0.1,
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
model.print_trainable_parameters()


def encode(batch):
    out = tok(batch["text"], truncation=True, max_length=128)
    out["labels"] = [label2id[x] for x in batch["intent"]]
    return out


ds = ds.map(encode, batched=True, remove_columns=["text", "intent"])


def compute_metrics(p):
    pred = np.argmax(p.predictions, axis=-1)
    return {"accuracy": float((pred == p.label_ids).mean())}


trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out/intent",
        num_train_epochs=3,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        learning_rate=2e-4,
        warmup_ratio=0.06,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        logging_steps=20,
        report_to="none",
    ),
    train_dataset=ds["train"],
    eval_dataset=ds["dev"],
    data_collator=DataCollatorWithPadding(tok),
    processing_class=tok,
    compute_metrics=compute_metrics,
)
trainer.train()
trainer.save_model("out/intent/best")
