#!/usr/bin/env python
"""Continued pre-training / SFT on plain text with Accelerate."""
import csv
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, default_data_collator, get_scheduler

MODEL = "HuggingFaceTB/SmolLM2-1.7B"
DATA = "/data/norsk_corpus/blocks_2048"  # input_ids, attention_mask, labels; all of 2048 tokens
OUT = "/runs/smollm2-norsk"

BATCH = 2
ACCUM = 16
LR = 5e-5
EPOCHS = 1
WARMUP = 50
LOG_EVERY = 10


def main():
    accelerator = Accelerator(gradient_accumulation_steps=ACCUM, mixed_precision="bf16")
    set_seed(42)

    ds = load_from_disk(DATA)
    train_dl = DataLoader(ds["train"], shuffle=True, batch_size=BATCH, collate_fn=default_data_collator, num_workers=4)
    eval_dl = DataLoader(ds["validation"], batch_size=BATCH, collate_fn=default_data_collator)

    model = AutoModelForCausalLM.from_pretrained(MODEL, attn_implementation="sdpa")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    no_decay = ["bias", "norm.weight"]
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if not any(k in n for k in no_decay)],
            "weight_decay": 0.1,
        },
        {
            "params": [p for n, p in model.named_parameters() if any(k in n for k in no_decay)],
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95))

    model, optimizer, train_dl, eval_dl = accelerator.prepare(model, optimizer, train_dl, eval_dl)

    updates_per_epoch = math.ceil(len(train_dl) / ACCUM)
    max_steps = EPOCHS * updates_per_epoch
    lr_scheduler = get_scheduler("linear", optimizer, num_warmup_steps=WARMUP, num_training_steps=max_steps)

    if accelerator.is_main_process:
        os.makedirs(OUT, exist_ok=True)
        log = open(os.path.join(OUT, "metrics.csv"), "w", newline="")
        writer = csv.writer(log)
        writer.writerow(["step", "epoch", "train_loss", "lr", "eval_loss"])

    bar = tqdm(total=max_steps, disable=not accelerator.is_local_main_process)
    done, running, count = 0, 0.0, 0
    model.train()
    for epoch in range(EPOCHS):
        for batch in train_dl:
            with accelerator.accumulate(model):
                out = model(**batch)
                accelerator.backward(out.loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            running += out.loss.detach().float().item()
            count += 1

            if accelerator.sync_gradients:
                done += 1
                bar.update(1)
                eval_loss = ""
                if done % 200 == 0:
                    eval_loss = evaluate(model, eval_dl, accelerator)
                if done % LOG_EVERY == 0 and accelerator.is_main_process:
                    writer.writerow([
                        done,
                        round(done / updates_per_epoch, 3),
                        round(running / count, 4),
                        f"{optimizer.param_groups[0]['lr']:.3e}",
                        eval_loss,
                    ])
                    log.flush()
                    running, count = 0.0, 0

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        OUT, is_main_process=accelerator.is_main_process, state_dict=accelerator.get_state_dict(model)
    )


@torch.no_grad()
def evaluate(model, dl, accelerator):
    model.eval()
    losses = []
    for b in dl:
        loss = model(**b).loss
        losses.append(accelerator.gather_for_metrics(loss.repeat(BATCH)).float())
    model.train()
    return round(torch.cat(losses).mean().item(), 4)


if __name__ == "__main__":
    main()
