import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

BASE = "microsoft/phi-4"
OPENING = "<|im_start|>assistant\n"
CLOSING = "<|im_end|>"


def reply_spans(text):
    at = 0
    while True:
        a = text.find(OPENING, at)
        if a < 0:
            return
        a += len(OPENING)
        b = text.find(CLOSING, a)
        b = len(text) if b < 0 else b + len(CLOSING)
        yield a, b
        at = b


def to_features(row, tokenizer):
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    enc = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, truncation=True, max_length=4096)
    labels = [-100] * len(enc["input_ids"])
    for a, b in reply_spans(text):
        for i, (s, e) in enumerate(enc["offset_mapping"]):
            if s >= a and e <= b:
                labels[i] = enc["input_ids"][i]
    return {"input_ids": enc["input_ids"], "attention_mask": enc["attention_mask"], "labels": labels}


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    rows = load_dataset("json", data_files="dialogues.jsonl", split="train")
    rows = rows.map(to_features, fn_kwargs={"tokenizer": tokenizer}, remove_columns=rows.column_names)
    args = TrainingArguments(
        output_dir="phi4-runs", num_train_epochs=2, per_device_train_batch_size=1, gradient_accumulation_steps=16,
        learning_rate=1e-4, lr_scheduler_type="cosine", warmup_steps=0.03, bf16=True, logging_steps=5, report_to="none",
    )
    collator = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)
    trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collator, processing_class=tokenizer)
    trainer.train()
    trainer.save_model("phi4-adapter")


if __name__ == "__main__":
    main()
