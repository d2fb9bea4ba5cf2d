import argparse
from itertools import chain

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator

BLOCK = 2048


def group(batch):
    joined = {k: list(chain.from_iterable(batch[k])) for k in batch}
    n = len(joined["input_ids"]) // BLOCK * BLOCK
    blocks = {k: [v[i:i + BLOCK] for i in range(0, n, BLOCK)] for k, v in joined.items()}
    blocks["labels"] = blocks["input_ids"].copy()
    return blocks


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.2-1B")
    p.add_argument("--data", default="data/corpus.jsonl")
    p.add_argument("--out", default="out/cpt")
    a = p.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)

    def encode(batch):
        return tok([t + tok.eos_token for t in batch["text"]])

    ds = load_dataset("json", data_files=a.data, split="train")
    ds = ds.map(encode, batched=True, remove_columns=ds.column_names)
    ds = ds.map(group, batched=True, batch_size=1000)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=a.out,
            learning_rate=1e-5,
            num_train_epochs=1,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=8,
            gradient_checkpointing=True,
            warmup_steps=50,
            lr_scheduler_type="cosine",
            weight_decay=0.01,
            bf16=True,
            logging_steps=10,
            save_steps=500,
            report_to="none",
        ),
        train_dataset=ds,
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
