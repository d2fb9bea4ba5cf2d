import argparse

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
import torch

ALPACA = """Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.

### Instruction:
{}

### Input:
{}

### Response:
{}"""


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B-Instruct")
    p.add_argument("--data", default="data/helpdesk.jsonl")
    p.add_argument("--out", default="out/helpdesk-lora")
    p.add_argument("--epochs", type=int, default=3)
    return p.parse_args()


def main():
    args = get_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model.config.use_cache = False

    def to_text(batch):
        texts = []
        for ins, inp, out in zip(batch["instruction"], batch["input"], batch["output"]):
            texts.append(ALPACA.format(ins, inp, out) + tokenizer.eos_token)
        return {"text": texts}

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(to_text, batched=True, remove_columns=ds.column_names)
    ds = ds.train_test_split(test_size=0.05, seed=17)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    cfg = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        max_length=1024,
        packing=False,
        dataset_text_field="text",
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    merged = trainer.model.merge_and_unload()
    merged.save_pretrained(args.out + "-merged")
    tokenizer.save_pretrained(args.out + "-merged")


if __name__ == "__main__":
    main()
