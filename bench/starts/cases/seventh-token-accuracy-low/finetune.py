"""LoRA fine-tune of Mistral-7B on meeting minutes with the transformers Trainer.

The val loss looks fine but the token accuracy is ridiculous, see train.log
"""
import json
import sys
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, set_seed

MODEL = "mistralai/Mistral-7B-Instruct-v0.3"
MAX_LEN = 3072
IGNORE_INDEX = -100


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def encode(row, tokenizer):
    messages = [{"role": "user", "content": "Write the minutes of this meeting.\n\n" + row["transcript"]}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(" " + row["minutes"].strip(), add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    input_ids = prompt_ids + answer_ids
    labels = [IGNORE_INDEX] * len(prompt_ids) + answer_ids
    return {"input_ids": input_ids, "labels": labels}


@dataclass
class Pad:
    pad_id: int

    def __call__(self, features):
        n = max(len(f["input_ids"]) for f in features)
        ids = [f["input_ids"] + [self.pad_id] * (n - len(f["input_ids"])) for f in features]
        labels = [f["labels"] + [IGNORE_INDEX] * (n - len(f["labels"])) for f in features]
        mask = [[1] * len(f["input_ids"]) + [0] * (n - len(f["input_ids"])) for f in features]
        return {
            "input_ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            "attention_mask": torch.tensor(mask),
        }


def preprocess_logits_for_metrics(logits, labels):
    # keep only the argmax: the full logits of the eval set do not fit in memory
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(eval_pred):
    predictions, labels = eval_pred.predictions, eval_pred.label_ids
    mask = labels != IGNORE_INDEX
    correct = (predictions == labels) & mask
    return {"token_accuracy": float(np.sum(correct) / np.sum(mask))}


def main():
    set_seed(11)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    pad_id = tokenizer.unk_token_id

    train = Dataset.from_list(read("data/minutes.train.jsonl"))
    val = Dataset.from_list(read("data/minutes.val.jsonl"))
    train = train.map(encode, fn_kwargs={"tokenizer": tokenizer}, remove_columns=train.column_names)
    val = val.map(encode, fn_kwargs={"tokenizer": tokenizer}, remove_columns=val.column_names)
    train = train.filter(lambda r: len(r["input_ids"]) <= MAX_LEN)
    val = val.filter(lambda r: len(r["input_ids"]) <= MAX_LEN)

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    ))
    model.print_trainable_parameters()

    args = TrainingArguments(
        output_dir="out/minutes-7b",
        num_train_epochs=3,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=50,
        save_steps=50,
        save_total_limit=2,
        eval_accumulation_steps=4,
        label_names=["labels"],
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=val,
        data_collator=Pad(pad_id),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    sys.exit(main())
