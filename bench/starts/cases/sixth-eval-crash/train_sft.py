"""LoRA fine-tune of Qwen2.5-7B on the ward protocol questions, with token accuracy on the dev set."""
import argparse

import numpy as np
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

IGNORE = -100


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--train", default="data/protocol_train.jsonl")
    p.add_argument("--dev", default="data/protocol_dev.jsonl")
    p.add_argument("--out", default="out/protocol-lora")
    p.add_argument("--max-len", type=int, default=1024)
    p.add_argument("--lr", type=float, default=1e-4)
    return p.parse_args()


def make_encoder(tokenizer, max_len):
    def encode(row):
        chat = row["messages"]
        prompt = tokenizer.apply_chat_template(chat[:-1], tokenize=False, add_generation_prompt=True)
        full = tokenizer.apply_chat_template(chat, tokenize=False)
        n_prompt = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        ids = tokenizer(full, add_special_tokens=False)["input_ids"][:max_len]
        labels = ([IGNORE] * n_prompt + ids[n_prompt:])[: len(ids)]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    return encode


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    preds = np.argmax(logits, axis=-1)
    preds, labels = preds[:, :-1], labels[:, 1:]
    mask = labels != IGNORE
    return {"token_accuracy": float((preds[mask] == labels[mask]).mean())}


def main():
    a = parse()
    set_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(a.base)
    model = AutoModelForCausalLM.from_pretrained(a.base, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    model.print_trainable_parameters()

    encode = make_encoder(tokenizer, a.max_len)
    data = load_dataset("json", data_files={"train": a.train, "dev": a.dev})
    data = data.map(encode, remove_columns=["messages"])

    args = TrainingArguments(
        output_dir=a.out,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        num_train_epochs=2,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        label_names=["labels"],
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORE),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
