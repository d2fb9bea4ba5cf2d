import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from settings import ADAPTER, BASE, DATA, wrap


def pairs(row):
    first = next(m["content"] for m in row["messages"] if m["role"] == "user")
    answer = next(m["content"] for m in row["messages"] if m["role"] == "assistant")
    return {"prompt": wrap(first), "completion": " " + answer.strip()}


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    ds = load_dataset(DATA)
    ds = ds.map(pairs, remove_columns=ds["train"].column_names)
    args = SFTConfig(
        output_dir=ADAPTER,
        learning_rate=1e-4,
        num_train_epochs=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        seed=19,
        report_to="none",
    )
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=lora,
    )
    trainer.train()
    trainer.save_model(ADAPTER)


if __name__ == "__main__":
    main()
