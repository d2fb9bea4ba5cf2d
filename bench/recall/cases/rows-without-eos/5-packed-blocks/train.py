import torch
from datasets import load_from_disk
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator, set_seed

NAME = "Qwen/Qwen2.5-1.5B"


def main():
    set_seed(2)
    ds = load_from_disk("data/faq_blocks")
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
    args = TrainingArguments(
        output_dir="out/faq",
        learning_rate=1e-5,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        warmup_steps=30,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        bf16=True,
        gradient_checkpointing=True,
        eval_strategy="steps",
        eval_steps=50,
        save_steps=100,
        save_total_limit=2,
        logging_steps=5,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/faq")
    tok.save_pretrained("out/faq")


if __name__ == "__main__":
    main()
