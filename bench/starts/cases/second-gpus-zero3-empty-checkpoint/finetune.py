import argparse
import math

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_cosine_schedule_with_warmup,
    set_seed,
)

logger = get_logger(__name__)
IGNORE = -100


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B")
    p.add_argument("--train-file", default="data/train.jsonl")
    p.add_argument("--out", default="ckpt/llama31-8b-legal")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--max-len", type=int, default=2048)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)
    accelerator = Accelerator(gradient_accumulation_steps=4)

    tok = AutoTokenizer.from_pretrained(args.model)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    ds = load_dataset("json", data_files=args.train_file, split="train")

    def encode(row):
        prompt = tok(f"### Question\n{row['question']}\n\n### Answer\n")["input_ids"]
        answer = tok(row["answer"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
        ids = (prompt + answer)[: args.max_len]
        labels = ([IGNORE] * len(prompt) + answer)[: args.max_len]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    with accelerator.main_process_first():
        ds = ds.map(encode, remove_columns=ds.column_names, num_proc=16)

    loader = DataLoader(
        ds,
        batch_size=2,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=IGNORE),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    steps = math.ceil(len(loader) / accelerator.num_processes / 4) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(
        optimizer, int(0.03 * steps) * accelerator.num_processes, steps * accelerator.num_processes
    )
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    model.train()
    seen = 0
    for epoch in range(args.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                seen += 1
                if seen % 20 == 0:
                    accelerator.print(f"epoch {epoch} step {seen}/{steps} loss {loss.item():.4f}")

    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    if accelerator.is_main_process:
        unwrapped.save_pretrained(args.out, safe_serialization=False)
        tok.save_pretrained(args.out)
    accelerator.print("saved to", args.out)


if __name__ == "__main__":
    main()
