import argparse

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

MODEL = "meta-llama/Llama-3.2-1B-Instruct"
MAX_LEN = 1536


def encode(tokenizer, row):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": row["question"] + "\n\n" + row["statute"]}],
        tokenize=False,
        add_generation_prompt=True,
    )
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(row["answer"].strip() + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    ids = prompt_ids + answer_ids
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [-100] * len(prompt_ids) + answer_ids,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    cli = parser.parse_args()
    set_seed(2026)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model.config.pad_token_id = tokenizer.pad_token_id

    rows = load_dataset("json", data_files=cli.data, split="train").train_test_split(test_size=0.03, seed=2026)
    rows = rows.map(lambda r: encode(tokenizer, r), remove_columns=rows["train"].column_names, num_proc=8)
    rows = rows.filter(lambda r: len(r["input_ids"]) <= MAX_LEN, num_proc=8)

    args = TrainingArguments(
        output_dir=cli.out,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=1,
        num_train_epochs=3,
        learning_rate=1e-5,
        warmup_steps=100,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        bf16=True,
        logging_steps=50,
        eval_strategy="epoch",
        save_strategy="epoch",
        dataloader_num_workers=4,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(cli.out + "/final")


if __name__ == "__main__":
    main()
