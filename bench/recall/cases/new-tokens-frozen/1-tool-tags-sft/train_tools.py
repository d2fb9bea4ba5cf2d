import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

TOOL_TAGS = ["<search>", "</search>", "<calc>", "</calc>", "<result>", "</result>"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="meta-llama/Llama-3.2-3B-Instruct")
    ap.add_argument("--data", default="data/tool_calls.jsonl")
    ap.add_argument("--out", default="out/tools-lora")
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    added = tokenizer.add_tokens(TOOL_TAGS, special_tokens=True)
    print("added", added, "tokens")

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        task_type="CAUSAL_LM",
    )
    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.select_columns(["prompt", "completion"]).train_test_split(test_size=0.05, seed=0)

    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=args.out,
            learning_rate=1e-4,
            num_train_epochs=3,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            max_length=2048,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            bf16=True,
            logging_steps=10,
            eval_strategy="epoch",
            report_to="none",
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
