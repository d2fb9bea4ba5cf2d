import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from blocks import Blocks

BASE = "HuggingFaceTB/SmolLM2-360M"


def main():
    set_seed(1234)
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    raw = load_dataset("text", data_files={"train": "corpus/train/*.txt", "valid": "corpus/valid/*.txt"}, sample_by="document")
    blocks = Blocks(tok, 1024)

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/agri-corpus",
            learning_rate=1e-5,
            num_train_epochs=1,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=4,
            lr_scheduler_type="cosine",
            warmup_steps=100,
            bf16=True,
            eval_strategy="steps",
            eval_steps=250,
            save_steps=250,
            logging_steps=20,
            report_to="none",
        ),
        train_dataset=blocks(raw["train"]),
        eval_dataset=blocks(raw["valid"]),
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/agri-corpus")


if __name__ == "__main__":
    main()
