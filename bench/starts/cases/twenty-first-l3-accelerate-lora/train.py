import argparse
import json
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import get_scheduler

from modeling import attach_adapter, decay_groups, load_base


def encode(tokenizer, row, limit):
    prompt = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"][:limit]
    return {"input_ids": ids, "labels": [-100] * len(p) + ids[len(p):]}


def collate(rows, pad):
    width = max(len(r["input_ids"]) for r in rows)
    out = {"input_ids": [], "labels": [], "attention_mask": []}
    for r in rows:
        gap = width - len(r["input_ids"])
        out["input_ids"].append(r["input_ids"] + [pad] * gap)
        out["labels"].append(r["labels"] + [-100] * gap)
        out["attention_mask"].append([1] * len(r["input_ids"]) + [0] * gap)
    return {k: torch.tensor(v) for k, v in out.items()}


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    losses = [accelerator.gather(model(**b).loss.detach()).mean().item() for b in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    p.add_argument("--train", default="triage_train.jsonl")
    p.add_argument("--dev", default="triage_dev.jsonl")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--limit", type=int, default=1024)
    p.add_argument("--out", default="adapter")
    args = p.parse_args()

    set_seed(5)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=1)
    model, tokenizer = load_base(args.model)
    optimizer = torch.optim.AdamW(decay_groups(model, 0.01), lr=args.lr)
    model = attach_adapter(model)

    sets = {}
    for split, path in (("train", args.train), ("dev", args.dev)):
        rows = [encode(tokenizer, json.loads(line), args.limit) for line in open(path, encoding="utf-8")]
        sets[split] = DataLoader(
            rows, batch_size=args.batch, shuffle=split == "train", collate_fn=lambda b: collate(b, tokenizer.pad_token_id)
        )
    total = math.ceil(len(sets["train"])) * args.epochs
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=int(0.05 * total), num_training_steps=total)
    model, optimizer, train, dev, scheduler = accelerator.prepare(model, optimizer, sets["train"], sets["dev"], scheduler)

    accelerator.print(f"eval_loss {evaluate(model, dev, accelerator):.4f} before training")
    step = 0
    for epoch in range(args.epochs):
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += 1
            if step % 10 == 0:
                accelerator.print(
                    f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} grad_norm {norm.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}"
                )
        accelerator.print(f"eval_loss {evaluate(model, dev, accelerator):.4f} after epoch {epoch}")
    accelerator.unwrap_model(model).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
