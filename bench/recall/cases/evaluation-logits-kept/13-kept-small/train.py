import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

from metrics import METRICS

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["instruction"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["output"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def main():
    set_seed(1)
    tok = AutoTokenizer.from_pretrained(MODEL)
    ds = load_dataset("json", data_files={"train": "data/train.jsonl", "valid": "data/valid.jsonl"})
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    args = TrainingArguments(
        output_dir="runs/instruct",
        learning_rate=2e-4,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["valid"],
        data_collator=DataCollatorForSeq2Seq(tok),
        processing_class=tok,
        **METRICS,
    )
    trainer.train()
    trainer.save_model("runs/instruct")


if __name__ == "__main__":
    main()
