import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from labels import ignore_outside

BASE = "Qwen/Qwen2.5-3B-Instruct"
MAX_LEN = 512


def tokenize(batch, tok):
    texts = [
        tok.apply_chat_template(
            [{"role": "user", "content": d}, {"role": "assistant", "content": t}], tokenize=False
        )
        for d, t in zip(batch["dish"], batch["text"])
    ]
    enc = tok(texts, add_special_tokens=False, truncation=True, max_length=MAX_LEN, padding="max_length")
    enc["labels"] = [ignore_outside(ids, mask) for ids, mask in zip(enc["input_ids"], enc["attention_mask"])]
    return enc


def main():
    set_seed(8)
    tok = AutoTokenizer.from_pretrained(BASE, padding_side="right")
    data = load_dataset("json", data_files="data/menu_cards.jsonl", split="train")
    data = data.map(tokenize, batched=True, fn_kwargs={"tok": tok}, remove_columns=data.column_names)
    data = data.train_test_split(test_size=0.05, seed=8)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16),
        LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/menu",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/menu")


if __name__ == "__main__":
    main()
