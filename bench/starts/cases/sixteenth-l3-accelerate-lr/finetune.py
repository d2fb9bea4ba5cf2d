#!/usr/bin/env python
import argparse
import logging
import math

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
logger = get_logger(__name__)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="mistralai/Mistral-7B-Instruct-v0.3")
    p.add_argument("--data", default="acme/support-48k")
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--max_len", type=int, default=2048)
    p.add_argument("--out", default="out/mistral-support")
    p.add_argument("--log_every", type=int, default=25)
    return p.parse_args()


def main():
    a = parse()
    accelerator = Accelerator(gradient_accumulation_steps=a.accum, mixed_precision="bf16")
    set_seed(3407)

    tok = AutoTokenizer.from_pretrained(a.model)
    if tok.pad_token is None:
        tok.pad_token = tok.unk_token
    model = AutoModelForCausalLM.from_pretrained(a.model)
    model.gradient_checkpointing_enable()
    model.config.use_cache = False

    def encode(ex):
        p = tok.apply_chat_template(ex["messages"][:-1], tokenize=True, return_dict=False)
        f = tok.apply_chat_template(ex["messages"], tokenize=True, return_dict=False)
        return {"input_ids": f, "labels": [-100] * len(p) + f[len(p):]}

    with accelerator.main_process_first():
        ds = load_dataset(a.data, split="train")
        ds = ds.map(encode, remove_columns=ds.column_names, num_proc=8)
        ds = ds.filter(lambda r: len(r["input_ids"]) <= a.max_len)

    loader = DataLoader(ds, batch_size=a.bs, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok), num_workers=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01)

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    steps_per_epoch = math.ceil(len(loader) / a.accum)
    total = steps_per_epoch * a.epochs
    lr_scheduler = accelerator.prepare(
        get_scheduler("cosine", optimizer=optimizer, num_warmup_steps=a.warmup, num_training_steps=total)
    )

    logger.info(f"examples {len(ds)}  epochs {a.epochs}  per-device bs {a.bs}  processes {accelerator.num_processes}  accum {a.accum}  steps {total}")

    step = 0
    buf = []
    model.train()
    for epoch in range(a.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            buf.append(loss.detach().float())
            if accelerator.sync_gradients:
                step += 1
                if step % a.log_every == 0:
                    mean = accelerator.gather(torch.stack(buf).mean()).mean().item()
                    buf = []
                    logger.info(f"epoch {epoch} step {step}/{total} loss {mean:.4f} lr {lr_scheduler.get_last_lr()[0]:.3e}")
        accelerator.wait_for_everyone()
        accelerator.unwrap_model(model).save_pretrained(
            a.out,
            is_main_process=accelerator.is_main_process,
            save_function=accelerator.save,
            state_dict=accelerator.get_state_dict(model),
        )
        if accelerator.is_main_process:
            tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
