import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from collate import PromptCollator

NAME = "mistralai/Mistral-7B-v0.3"


def load():
    tok = AutoTokenizer.from_pretrained(NAME)
    if tok.pad_token is None:
        tok.pad_token = tok.eos_token
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model.config.pad_token_id = tok.pad_token_id
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, lora), tok


def main():
    model, tok = load()
    ds = load_dataset("json", data_files="data/product_texts.jsonl", split="train")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/product",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            warmup_steps=20,
            lr_scheduler_type="cosine",
            bf16=True,
            remove_unused_columns=False,
            logging_steps=10,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=PromptCollator(tok, 1024),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
