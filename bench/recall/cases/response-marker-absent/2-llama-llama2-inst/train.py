import torch
from collator import CompletionCollator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

BASE = "meta-llama/Llama-3.2-3B-Instruct"
RESPONSE = "[/INST]"


def to_ids(row, tokenizer):
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    return tokenizer(text, add_special_tokens=False, truncation=True, max_length=2048)


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    rows = load_dataset("json", data_files="train.jsonl", split="train")
    rows = rows.map(lambda r: to_ids(r, tokenizer), remove_columns=rows.column_names)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs", num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=4,
            learning_rate=2e-4, lr_scheduler_type="cosine", warmup_steps=0.03, bf16=True, logging_steps=10,
            save_strategy="epoch", report_to="none",
        ),
        train_dataset=rows,
        data_collator=CompletionCollator(RESPONSE, tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model("adapter")


if __name__ == "__main__":
    main()
