import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, set_seed

from batching import TextCollator

BASE = "HuggingFaceTB/SmolLM2-1.7B"


def main():
    set_seed(5)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = tok.eos_token
    tok.padding_side = "right"
    ds = load_dataset("openai/gsm8k", "main")
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32),
        args=TrainingArguments(
            output_dir="runs/smol-gsm8k",
            learning_rate=1e-5,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            warmup_steps=50,
            bf16=True,
            remove_unused_columns=False,
            eval_strategy="epoch",
            logging_steps=20,
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=TextCollator(tok),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/smol-gsm8k/final")


if __name__ == "__main__":
    main()
