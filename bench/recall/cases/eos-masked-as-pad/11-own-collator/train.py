from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)

BASE = "HuggingFaceTB/SmolLM2-1.7B"


@dataclass
class TextCollator:
    tok: PreTrainedTokenizerBase
    max_length: int = 1024

    def __call__(self, rows):
        texts = [f"Question: {r['question']}\nAnswer: {r['answer']}{self.tok.eos_token}" for r in rows]
        heads = [f"Question: {r['question']}\nAnswer:" for r in rows]
        enc = self.tok(texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        labels = enc["input_ids"].clone()
        labels[labels == self.tok.pad_token_id] = -100
        for i, head in enumerate(heads):
            labels[i, : len(self.tok(head)["input_ids"])] = -100
        enc["labels"] = labels
        return enc


def main():
    set_seed(5)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = tok.eos_token
    tok.padding_side = "right"
    ds = load_dataset("openai/gsm8k", "main")
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="runs/smol-gsm8k",
            learning_rate=1e-5,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            lr_scheduler_type="cosine",
            warmup_steps=50,
            bf16=True,
            remove_unused_columns=False,
            eval_strategy="epoch",
            save_strategy="epoch",
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
