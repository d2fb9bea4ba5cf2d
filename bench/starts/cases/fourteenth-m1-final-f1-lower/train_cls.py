import evaluate
import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen3-1.7B-Base"
OUT = "runs/complaints-v4"

ds = load_dataset("acme-bank/complaints-intent", revision="v4")
labels = ds["train"].features["label"].names

tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForSequenceClassification.from_pretrained(
    MODEL,
    num_labels=len(labels),
    id2label=dict(enumerate(labels)),
    label2id={l: i for i, l in enumerate(labels)},
    dtype=torch.bfloat16,
)
model.config.pad_token_id = tok.pad_token_id
model = get_peft_model(
    model,
    LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=16,
        lora_alpha=32,
        lora_dropout=0.1,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        modules_to_save=["score"],
    ),
)


def prep(batch):
    return tok(batch["text"], truncation=True, max_length=512)


enc = ds.map(prep, batched=True, remove_columns=["text"])

f1 = evaluate.load("f1")
acc = evaluate.load("accuracy")


def compute_metrics(p):
    pred = np.argmax(p.predictions, axis=-1)
    return {
        "accuracy": acc.compute(predictions=pred, references=p.label_ids)["accuracy"],
        "macro_f1": f1.compute(predictions=pred, references=p.label_ids, average="macro")["f1"],
    }


args = TrainingArguments(
    output_dir=OUT,
    num_train_epochs=4,
    learning_rate=2e-4,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=64,
    warmup_ratio=0.05,
    lr_scheduler_type="linear",
    bf16=True,
    logging_steps=50,
    eval_strategy="steps",
    eval_steps=200,
    save_strategy="steps",
    save_steps=200,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="macro_f1",
    greater_is_better=False,
    report_to="none",
    seed=13,
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=enc["train"],
    eval_dataset=enc["validation"],
    data_collator=DataCollatorWithPadding(tok),
    processing_class=tok,
    compute_metrics=compute_metrics,
)
trainer.train()
print("validation", trainer.evaluate(enc["validation"]))
print("test", trainer.evaluate(enc["test"], metric_key_prefix="test"))
trainer.save_model(OUT + "/best")
