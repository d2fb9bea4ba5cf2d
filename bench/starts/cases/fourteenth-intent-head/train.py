import json
import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from sklearn.metrics import accuracy_score, f1_score
from transformers import (AutoModelForSequenceClassification, AutoTokenizer,
                          DataCollatorWithPadding, Trainer, TrainingArguments)

BASE = "Qwen/Qwen2.5-1.5B"
LABELS = ["billing", "cancel", "delivery", "login", "refund", "upgrade", "other"]
id2label = dict(enumerate(LABELS))
label2id = {l: i for i, l in id2label.items()}

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForSequenceClassification.from_pretrained(
    BASE, num_labels=len(LABELS), id2label=id2label, label2id=label2id, torch_dtype=torch.bfloat16)
model.config.pad_token_id = tok.pad_token_id

peft_cfg = LoraConfig(
    task_type=TaskType.CAUSAL_LM,
    r=32, lora_alpha=64, lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
)
model = get_peft_model(model, peft_cfg)
model.print_trainable_parameters()


def enc(b):
    e = tok(b["text"], truncation=True, max_length=256)
    e["labels"] = [label2id[x] for x in b["intent"]]
    return e


ds = load_dataset("csv", data_files={"train": "intents_train.csv", "dev": "intents_dev.csv"})
ds = ds.map(enc, batched=True, remove_columns=["text", "intent"])


def metrics(p):
    y = np.argmax(p.predictions, axis=-1)
    return {"accuracy": accuracy_score(p.label_ids, y),
            "macro_f1": f1_score(p.label_ids, y, average="macro")}


args = TrainingArguments(
    "runs/intent-qwen", num_train_epochs=3, learning_rate=2e-4,
    per_device_train_batch_size=32, per_device_eval_batch_size=64,
    lr_scheduler_type="cosine", warmup_ratio=0.03, bf16=True,
    logging_steps=20, eval_strategy="epoch", save_strategy="epoch", report_to="none", seed=3)

trainer = Trainer(model=model, args=args, train_dataset=ds["train"], eval_dataset=ds["dev"],
                  data_collator=DataCollatorWithPadding(tok), compute_metrics=metrics)
trainer.train()
print(json.dumps(trainer.evaluate(), indent=1))
model.save_pretrained("intent-adapter")
tok.save_pretrained("intent-adapter")
