#!/usr/bin/env python
"""Own training loop with Accelerate (DDP on 4x A6000): Qwen2.5-1.5B on radiology report impressions."""
import argparse
import json
import math
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

IGNORE = -100


class Reports(Dataset):
    def __init__(self, path, tokenizer, max_len):
        self.rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
        self.tokenizer = tokenizer
        self.max_len = max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": "Write the impression.\n\nFindings:\n" + row["findings"]}],
            tokenize=False, add_generation_prompt=True,
        )
        p = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        a = self.tokenizer(row["impression"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        ids, labels = (p + a)[: self.max_len], ([IGNORE] * len(p) + a)[: self.max_len]
        return {"input_ids": ids, "labels": labels}


def make_collate(pad_id):
    def collate(batch):
        n = max(len(b["input_ids"]) for b in batch)
        ids = torch.full((len(batch), n), pad_id)
        mask = torch.zeros(len(batch), n, dtype=torch.long)
        labels = torch.full((len(batch), n), IGNORE)
        for k, b in enumerate(batch):
            m = len(b["input_ids"])
            ids[k, :m] = torch.tensor(b["input_ids"])
            mask[k, :m] = 1
            labels[k, :m] = torch.tensor(b["labels"])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return collate


@torch.no_grad()
def validate(accelerator, model, loader):
    model.eval()
    losses = []
    for batch in tqdm(loader, desc="validation"):
        loss = model(**batch).loss
        losses.append(accelerator.gather_for_metrics(loss.repeat(batch["input_ids"].shape[0])))
    model.train()
    return torch.cat(losses).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--train", default="reports_train.jsonl")
    ap.add_argument("--val", default="reports_val.jsonl")
    ap.add_argument("--out", default="ckpt")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--bs", type=int, default=4)
    ap.add_argument("--max-len", type=int, default=1536)
    args = ap.parse_args()

    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    set_seed(1234)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    collate = make_collate(tokenizer.pad_token_id)
    train_loader = DataLoader(Reports(args.train, tokenizer, args.max_len), batch_size=args.bs, shuffle=True,
                              collate_fn=collate, num_workers=4, drop_last=True)
    val_loader = DataLoader(Reports(args.val, tokenizer, args.max_len), batch_size=args.bs, collate_fn=collate)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    model, optimizer, train_loader, val_loader = accelerator.prepare(model, optimizer, train_loader, val_loader)
    steps = args.epochs * math.ceil(len(train_loader) / 4)
    scheduler = accelerator.prepare(get_cosine_schedule_with_warmup(optimizer, int(0.03 * steps) * accelerator.num_processes, steps * accelerator.num_processes))

    best = float("inf")
    for epoch in range(args.epochs):
        model.train()
        for step, batch in enumerate(train_loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step}/{len(train_loader)} loss {loss.item():.4f}")

        # validation and checkpoint only once
        if accelerator.is_main_process:
            val_loss = validate(accelerator, model, val_loader)
            print(f"epoch {epoch} val_loss {val_loss:.4f}")
            if val_loss < best:
                best = val_loss
                accelerator.unwrap_model(model).save_pretrained(args.out)
                tokenizer.save_pretrained(args.out)
        accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
