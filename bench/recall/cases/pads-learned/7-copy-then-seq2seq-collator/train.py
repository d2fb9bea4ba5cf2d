import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments


def tokenize(row, tok, max_length):
    text = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}], tokenize=False
    )
    out = tok(text, truncation=True, max_length=max_length, add_special_tokens=False)
    out["labels"] = out["input_ids"].copy()
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--out", default="out/qa")
    a = p.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model, padding_side="right")
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    ds = load_dataset("json", data_files="data/qa.jsonl", split="train")
    ds = ds.map(tokenize, fn_kwargs={"tok": tok, "max_length": 1024}, remove_columns=ds.column_names)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=a.out,
            learning_rate=2e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, pad_to_multiple_of=8),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
