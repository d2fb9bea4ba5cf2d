import argparse

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from adapter import adapter_for

SECTIONS = ["<facts>", "<claim>", "<verdict>"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="meta-llama/Llama-3.2-3B-Instruct")
    ap.add_argument("--out", default="out/court")
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.add_tokens(SECTIONS, special_tokens=True)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.resize_token_embeddings(len(tokenizer))

    ds = load_dataset("json", data_files="data/court.jsonl", split="train").select_columns(["prompt", "completion"])
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=args.out,
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=2048,
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=ds,
        processing_class=tokenizer,
        peft_config=adapter_for(tokenizer, SECTIONS),
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
