"""Second stage: tune the support assistant on the ticket summaries."""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

BASE = "Qwen/Qwen2.5-3B-Instruct"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--stage1", default="runs/stage1/adapter")
    p.add_argument("--data", default="data/summaries.jsonl")
    p.add_argument("--out", default="runs/stage2")
    p.add_argument("--max-length", type=int, default=2048)
    return p.parse_args()


def encode(row, tokenizer):
    messages = [{"role": "user", "content": row["ticket"]}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(row["summary"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {
        "input_ids": prompt_ids + answer_ids,
        "attention_mask": [1] * (len(prompt_ids) + len(answer_ids)),
        "labels": [-100] * len(prompt_ids) + answer_ids,
    }


def load_model(stage1):
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(base, stage1)
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()
    return model


def main():
    args = parse_args()
    set_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("json", data_files=args.data, split="train").train_test_split(test_size=0.05, seed=17)
    ds = ds.map(encode, fn_kwargs={"tokenizer": tokenizer}, remove_columns=ds["train"].column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= args.max_length)
    trainer = Trainer(
        model=load_model(args.stage1),
        args=TrainingArguments(
            output_dir=args.out,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            learning_rate=1e-4,
            lr_scheduler_type="cosine",
            warmup_steps=30,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.out + "/adapter")


if __name__ == "__main__":
    main()
