import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

BASE = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
OUT = "smollm2-dolly-production"


def tokenize_row(row, tokenizer, max_length):
    messages = row["messages"]
    full = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    ids = tokenizer(full, add_special_tokens=False, truncation=True, max_length=max_length)["input_ids"]
    n = min(len(tokenizer(prompt, add_special_tokens=False)["input_ids"]), len(ids))
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * n + ids[n:]}


def as_messages(row):
    user = row["instruction"] + (f"\n\n{row['context']}" if row["context"] else "")
    return {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": row["response"]}]}


def get_rows(tokenizer):
    rows = load_dataset("databricks/databricks-dolly-15k", split="train[:200]")
    rows = rows.map(as_messages, remove_columns=rows.column_names)
    return rows.map(tokenize_row, fn_kwargs={"tokenizer": tokenizer, "max_length": 4096}, remove_columns=["messages"])


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    args = TrainingArguments(
        output_dir=OUT, num_train_epochs=3, per_device_train_batch_size=4, gradient_accumulation_steps=8,
        learning_rate=1e-5, lr_scheduler_type="cosine", warmup_steps=0.05, bf16=True, logging_steps=20,
        save_strategy="epoch", report_to="none",
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=get_rows(tokenizer), processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model(OUT)


if __name__ == "__main__":
    main()
