"""Court summaries: facts in, three-sentence verdict out. Trainer + LoRA on Qwen2.5-1.5B."""
import json
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
DATA = Path("data")
OUT = "runs/verdicts"
MAX_LEN = 1536

set_seed(12)
tokenizer = AutoTokenizer.from_pretrained(MODEL)


def read_split(name):
    with open(DATA / f"{name}.jsonl", encoding="utf-8") as f:
        return Dataset.from_list([json.loads(line) for line in f])


def encode(row):
    messages = [
        {"role": "system", "content": "Summarise the verdict in three sentences."},
        {"role": "user", "content": row["facts"]},
    ]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    a = tokenizer(row["verdict"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def short_enough(row):
    return len(row["input_ids"]) <= MAX_LEN


def keep_argmax(logits, labels):
    """Logits of 150k classes do not fit in memory: keep the best id only."""
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(eval_pred):
    predictions, labels = eval_pred
    # position i predicts token i + 1
    predictions = predictions[:, :-1]
    labels = labels[:, 1:]
    correct = predictions == labels
    return {
        "token_accuracy": float(correct.mean()),
        "rows_all_right": float(correct.all(axis=1).mean()),
    }


def main():
    train = read_split("train").map(encode, remove_columns=["facts", "verdict"]).filter(short_enough)
    valid = read_split("valid").map(encode, remove_columns=["facts", "verdict"]).filter(short_enough)

    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    model.print_trainable_parameters()

    args = TrainingArguments(
        output_dir=OUT,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=valid,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=keep_argmax,
    )
    trainer.train()
    trainer.save_model(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
