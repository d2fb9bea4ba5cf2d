from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class ScriptArguments:
    model_name: str = field(default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    train_file: str = field(default="letters_train.jsonl")
    valid_file: str = field(default="letters_valid.jsonl")
    max_length: int = field(default=2048)


def tokenize_row(row, tokenizer, max_length):
    messages = row["messages"]
    full = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    ids = tokenizer(full, add_special_tokens=False, truncation=True, max_length=max_length)["input_ids"]
    n = min(len(tokenizer(prompt, add_special_tokens=False)["input_ids"]), len(ids))
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * n + ids[n:]}


def main():
    (cfg,) = HfArgumentParser(ScriptArguments).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(cfg.model_name)
    model = AutoModelForCausalLM.from_pretrained(cfg.model_name, dtype=torch.float16)

    files = {"train": cfg.train_file, "validation": cfg.valid_file}
    data = load_dataset("json", data_files=files)
    data = data.map(
        tokenize_row,
        fn_kwargs={"tokenizer": tokenizer, "max_length": cfg.max_length},
        remove_columns=data["train"].column_names,
    )

    training_args = TrainingArguments(
        output_dir="letters-smollm2",
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        seed=3,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model("letters-smollm2/final")


if __name__ == "__main__":
    main()
