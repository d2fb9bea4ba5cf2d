import argparse
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen3-4B-Base")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--max_len", type=int, default=1024)
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--log_every", type=int, default=10)
    p.add_argument("--out", default="ckpt/notes-lora")
    return p.parse_args()


def encode(row, tok, max_len):
    prompt = f"Consultation:\n{row['transcript']}\n\nNote:\n"
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(row["note"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    p = p[-(max_len - len(a)):]
    return {"input_ids": p + a, "labels": [-100] * len(p) + a}


def make_collate(pad_id):
    def collate(rows):
        n = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), n), pad_id)
        att = torch.zeros((len(rows), n), dtype=torch.long)
        lab = torch.full((len(rows), n), -100)
        for i, r in enumerate(rows):
            k = len(r["input_ids"])
            ids[i, :k] = torch.tensor(r["input_ids"])
            att[i, :k] = 1
            lab[i, :k] = torch.tensor(r["labels"])
        return {"input_ids": ids, "attention_mask": att, "labels": lab}

    return collate


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    total, count = 0.0, 0
    for batch in loader:
        n = (batch["labels"][:, 1:] != -100).sum()
        loss = model(**batch).loss
        s = accelerator.gather(torch.stack([loss.float() * n, n.float()]).unsqueeze(0))
        total += s[:, 0].sum().item()
        count += s[:, 1].sum().item()
    model.train()
    return total / count


def main():
    args = parse()
    set_seed(11)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=args.accum)

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, betas=(0.9, 0.95))

    model = get_peft_model(
        model,
        LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    if accelerator.is_main_process:
        model.print_trainable_parameters()

    ds = load_dataset("json", data_files={"train": "notes_train.jsonl", "val": "notes_val.jsonl"})
    with accelerator.main_process_first():
        ds = ds.map(encode, fn_kwargs={"tok": tok, "max_len": args.max_len}, remove_columns=ds["train"].column_names)
    collate = make_collate(tok.pad_token_id)
    train_loader = DataLoader(ds["train"], batch_size=args.bs, shuffle=True, collate_fn=collate, drop_last=True)
    val_loader = DataLoader(ds["val"], batch_size=args.bs, collate_fn=collate)

    model, optimizer, train_loader, val_loader = accelerator.prepare(model, optimizer, train_loader, val_loader)
    steps = math.ceil(len(train_loader) / args.accum) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, args.warmup, steps)

    accelerator.print(f"train {len(ds['train'])} val {len(ds['val'])} optimizer steps {steps}")
    accelerator.print(f"before training: val_loss {evaluate(model, val_loader, accelerator):.4f}")

    step, running, seen = 0, 0.0, 0
    bar = tqdm(total=steps, disable=not accelerator.is_local_main_process)
    for epoch in range(args.epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                running += loss.detach().float().item()
                seen += 1
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                bar.update(1)
                if step % args.log_every == 0:
                    accelerator.print(
                        f"epoch {epoch} step {step} loss {running / seen:.4f} "
                        f"lr {scheduler.get_last_lr()[0]:.3e} grad_norm {norm.item():.3f}"
                    )
                    running, seen = 0.0, 0
        accelerator.print(f"epoch {epoch} done: val_loss {evaluate(model, val_loader, accelerator):.4f}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(args.out, save_function=accelerator.save)
    if accelerator.is_main_process:
        tok.save_pretrained(args.out)
        print("saved", os.path.abspath(args.out))


if __name__ == "__main__":
    main()
