import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

BASE = "Qwen/Qwen2.5-3B-Instruct"


def to_features(row, tokenizer):
    user = [{"role": "user", "content": "Summarise the shift log.\n\n" + row["log"]}]
    head = tokenizer.apply_chat_template(user, tokenize=False, add_generation_prompt=True)
    whole = head + row["summary"] + tokenizer.eos_token
    n_prompt = len(tokenizer(head, add_special_tokens=False)["input_ids"])
    enc = tokenizer(whole, add_special_tokens=False, truncation=True, max_length=768)
    labels = [t if i >= n_prompt else -100 for i, t in enumerate(enc["input_ids"])]
    return {"input_ids": enc["input_ids"], "attention_mask": enc["attention_mask"], "labels": labels}


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE, truncation_side="left")
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    rows = load_dataset("json", data_files="shifts.jsonl", split="train")
    rows = rows.map(to_features, fn_kwargs={"tokenizer": tokenizer}, remove_columns=rows.column_names)
    args = TrainingArguments(
        output_dir="runs", num_train_epochs=3, per_device_train_batch_size=2, gradient_accumulation_steps=4,
        learning_rate=2e-4, lr_scheduler_type="cosine", warmup_steps=0.05, bf16=True, logging_steps=5, report_to="none",
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=rows, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model("shift-adapter")


if __name__ == "__main__":
    main()
