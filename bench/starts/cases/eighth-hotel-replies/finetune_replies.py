"""Fine-tune Llama-3.2-1B (base) to answer guest reviews. Alpaca style, transformers Trainer + LoRA."""
import sys

from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

BASE = "meta-llama/Llama-3.2-1B"
CUTOFF = 1024

PROMPT = """Below is a review that a guest has left. Write the reply of the hotel.

### Review:
{review}

### Reply:
"""

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = "<|finetune_right_pad_id|>"


def tokenize(row):
    prompt = PROMPT.format(review=row["review"].strip())
    prompt_ids = tokenizer(prompt)["input_ids"]
    reply_ids = tokenizer(row["reply"].strip(), add_special_tokens=False)["input_ids"]
    input_ids = (prompt_ids + reply_ids)[:CUTOFF]
    labels = ([-100] * len(prompt_ids) + reply_ids)[:CUTOFF]
    return {
        "input_ids": input_ids,
        "attention_mask": [1] * len(input_ids),
        "labels": labels,
    }


def main(train_file, out):
    data = load_dataset("json", data_files=train_file, split="train")
    data = data.shuffle(seed=3).map(tokenize, remove_columns=data.column_names)
    parts = data.train_test_split(test_size=0.05, seed=3)

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16")
    model = get_peft_model(
        model,
        LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear",
                   task_type="CAUSAL_LM"),
    )
    args = TrainingArguments(
        output_dir=out,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=2e-4,
        warmup_ratio=0.03,
        lr_scheduler_type="cosine",
        bf16=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
