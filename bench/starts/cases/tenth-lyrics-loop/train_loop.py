#!/usr/bin/env python
"""Continued training of Qwen3-14B-Base on song lyrics, own loop.

accelerate launch --config_file fsdp.yaml train_loop.py --data data/lyrics.jsonl
"""
import argparse
import math
import os
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator, get_cosine_schedule_with_warmup

BLOCK = 2048


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen3-14B-Base")
    p.add_argument("--data", default="data/lyrics.jsonl")
    p.add_argument("--out", default="runs/lyrics")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--accumulate", type=int, default=8)
    p.add_argument("--save-every", type=int, default=250)
    p.add_argument("--eval-every", type=int, default=250)
    return p.parse_args()


def blocks(tokenizer, path):
    raw = load_dataset("json", data_files=path, split="train").train_test_split(test_size=0.02, seed=5)

    def group(batch):
        ids = []
        for text in batch["text"]:
            ids.extend(tokenizer(text)["input_ids"] + [tokenizer.eos_token_id])
        n = len(ids) // BLOCK * BLOCK
        chunks = [ids[i : i + BLOCK] for i in range(0, n, BLOCK)]
        return {"input_ids": chunks, "attention_mask": [[1] * BLOCK for _ in chunks], "labels": [list(c) for c in chunks]}

    return raw.map(group, batched=True, batch_size=500, remove_columns=raw["train"].column_names, num_proc=8)


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    total, count = 0.0, 0
    for batch in loader:
        loss = model(**batch).loss
        losses = accelerator.gather_for_metrics(loss.repeat(batch["input_ids"].size(0)))
        total += losses.sum().item()
        count += losses.numel()
    model.train()
    return total / max(count, 1)


def main():
    args = parse()
    set_seed(17)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate, log_with="tensorboard", project_dir=args.out)
    accelerator.init_trackers("lyrics")

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.config.use_cache = False

    with accelerator.main_process_first():
        data = blocks(tokenizer, args.data)
    train = DataLoader(data["train"], batch_size=args.batch, shuffle=True, collate_fn=default_data_collator, drop_last=True)
    val = DataLoader(data["test"], batch_size=args.batch, collate_fn=default_data_collator)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, betas=(0.9, 0.95))
    steps = math.ceil(len(train) / accelerator.num_processes / args.accumulate) * args.epochs
    schedule = get_cosine_schedule_with_warmup(optimizer, int(0.03 * steps) * accelerator.num_processes, steps * accelerator.num_processes)
    model, optimizer, train, val, schedule = accelerator.prepare(model, optimizer, train, val, schedule)

    step, started = 0, time.time()
    for epoch in range(args.epochs):
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()

            if not accelerator.sync_gradients:
                continue
            step += 1

            if step % 10 == 0:
                mean = accelerator.reduce(loss.detach(), reduction="mean").item()
                accelerator.log({"loss": mean, "lr": schedule.get_last_lr()[0]}, step=step)
                accelerator.print(f"epoch {epoch} step {step}/{steps} loss {mean:.4f} {time.time() - started:.0f}s")

            if step % args.eval_every == 0:
                value = evaluate(model, val, accelerator)
                accelerator.print(f"  eval loss {value:.4f} ppl {math.exp(value):.2f}")

            if step % args.save_every == 0:
                if accelerator.is_main_process:
                    path = os.path.join(args.out, f"step-{step}")
                    os.makedirs(path, exist_ok=True)
                    accelerator.save_state(path)
                    tokenizer.save_pretrained(path)
                    print(f"  saved {path}")

    accelerator.wait_for_everyone()
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        os.path.join(args.out, "final"), is_main_process=accelerator.is_main_process, save_function=accelerator.save, state_dict=state
    )
    accelerator.end_training()


if __name__ == "__main__":
    main()
