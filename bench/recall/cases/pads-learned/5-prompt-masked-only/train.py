import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator

NAME = "Qwen/Qwen2.5-7B-Instruct"


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/emails",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            warmup_steps=20,
            lr_scheduler_type="cosine",
            bf16=True,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=load_from_disk("data/emails_tok"),
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
