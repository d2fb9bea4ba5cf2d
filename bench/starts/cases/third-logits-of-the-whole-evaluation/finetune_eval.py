import evaluate
import numpy as np
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tok = AutoTokenizer.from_pretrained("google/gemma-2-2b-it")
ds = load_dataset("parquet", data_files={"train": "train.parquet", "test": "test.parquet"})
acc = evaluate.load("accuracy")


def compute_metrics(p):
    preds = np.argmax(p.predictions, axis=-1)[:, :-1]
    labels = p.label_ids[:, 1:]
    keep = labels != -100
    return acc.compute(predictions=preds[keep], references=labels[keep])


trainer = SFTTrainer(
    model="google/gemma-2-2b-it",
    processing_class=tok,
    args=SFTConfig(
        output_dir="gemma-eval",
        per_device_train_batch_size=2,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        eval_strategy="steps",
        eval_steps=200,
        learning_rate=1e-4,
        max_length=1024,
        bf16=True,
        report_to="none",
    ),
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    peft_config=LoraConfig(r=16, lora_alpha=16, target_modules="all-linear"),
    compute_metrics=compute_metrics,
)
trainer.train()
