"""Full fine-tune of Llama 3.1 8B on radiology notes, 4 x H100.

    accelerate launch --config_file fsdp.yaml train_fsdp.py 2>&1 | tee train.log
"""
import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_cosine_schedule_with_warmup,
)

BASE = "/models/Llama-3.1-8B-Instruct"


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="/data/radnotes_tok")
    ap.add_argument("--out", default="/ckpt/radnotes-8b")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--batch-size", type=int, default=2)
    ap.add_argument("--accum", type=int, default=8)
    ap.add_argument("--save-every", type=int, default=200)
    return ap.parse_args()


def save(accelerator, model, tokenizer, path):
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(
        path,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(model),
    )
    tokenizer.save_pretrained(path)


def main():
    args = parse()
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    set_seed(17)

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False

    data = load_from_disk(args.data)
    collate = DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100)
    loader = DataLoader(data["train"], batch_size=args.batch_size, shuffle=True, collate_fn=collate, num_workers=4)

    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, betas=(0.9, 0.95))
    total = len(loader) * args.epochs // args.accum
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    optimizer, loader, scheduler = accelerator.prepare(optimizer, loader, scheduler)

    step = 0
    for epoch in range(args.epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % 10 == 0:
                mean = accelerator.gather(loss.detach()).mean().item()
                accelerator.print(f"epoch {epoch} step {step} loss {mean:.4f} lr {scheduler.get_last_lr()[0]:.2e}")
            if step % args.save_every == 0 and accelerator.is_main_process:
                path = os.path.join(args.out, f"step-{step}")
                print(f"saving {path}", flush=True)
                save(accelerator, model, tokenizer, path)

    accelerator.wait_for_everyone()
    save(accelerator, model, tokenizer, os.path.join(args.out, "final"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
