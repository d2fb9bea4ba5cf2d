import sys
from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, HfArgumentParser, Trainer, TrainingArguments,
)


@dataclass
class Extra:
    model_name: str
    train_file: str
    max_length: int = 2048


def tokenize_row(row, tokenizer, max_length):
    messages = row["messages"]
    full = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    ids = tokenizer(full, add_special_tokens=False, truncation=True, max_length=max_length)["input_ids"]
    n = min(len(tokenizer(prompt, add_special_tokens=False)["input_ids"]), len(ids))
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * n + ids[n:]}


def main(path):
    extra, args = HfArgumentParser((Extra, TrainingArguments)).parse_yaml_file(path)
    tokenizer = AutoTokenizer.from_pretrained(extra.model_name)
    model = AutoModelForCausalLM.from_pretrained(extra.model_name, dtype=torch.float32)
    rows = load_dataset("json", data_files=extra.train_file, split="train")
    rows = rows.map(
        tokenize_row, fn_kwargs={"tokenizer": tokenizer, "max_length": extra.max_length}, remove_columns=rows.column_names
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=rows, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main(sys.argv[1])
