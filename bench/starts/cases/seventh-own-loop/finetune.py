"""Fine-tune SmolLM2-1.7B on support answers, plain PyTorch, one RTX A6000.

    python finetune.py

Training runs at 31 GB of 48. In the first validation the memory climbs batch by batch until CUDA is out of memory.
"""
import json
import math
import random
from functools import partial
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL = "HuggingFaceTB/SmolLM2-1.7B"
DEVICE = "cuda"
EPOCHS = 3
LR = 1e-5
BATCH = 4
MAX_LEN = 512
EVAL_EVERY = 50


def read_jsonl(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def encode(row, tokenizer):
    prompt = f"Customer: {row['question']}\nAgent:"
    p = tokenizer(prompt)["input_ids"]
    a = tokenizer(" " + row["answer"])["input_ids"] + [tokenizer.eos_token_id]
    ids = (p + a)[:MAX_LEN]
    labels = ([-100] * len(p) + a)[:MAX_LEN]
    return ids, labels


def collate(batch, pad_id):
    longest = max(len(ids) for ids, _ in batch)
    out = {"input_ids": [], "attention_mask": [], "labels": []}
    for ids, labels in batch:
        fill = longest - len(ids)
        out["input_ids"].append(ids + [pad_id] * fill)
        out["attention_mask"].append([1] * len(ids) + [0] * fill)
        out["labels"].append(labels + [-100] * fill)
    return {k: torch.tensor(v) for k, v in out.items()}


def validate(model, loader):
    model.eval()
    total = 0.0
    hits, tokens = 0, 0
    for batch in loader:
        batch = {k: v.to(DEVICE) for k, v in batch.items()}
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            out = model(**batch)
        total += out.loss
        shifted = batch["labels"][:, 1:]
        guess = out.logits[:, :-1].argmax(-1)
        learned = shifted != -100
        hits += (guess[learned] == shifted[learned]).sum().item()
        tokens += learned.sum().item()
    model.train()
    return total.item() / len(loader), hits / tokens


def main():
    random.seed(0)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).to(DEVICE)
    model.config.use_cache = False

    train = [encode(r, tokenizer) for r in read_jsonl("data/train.jsonl")]
    valid = [encode(r, tokenizer) for r in read_jsonl("data/valid.jsonl")]
    fn = partial(collate, pad_id=pad_id)
    train_loader = DataLoader(train, batch_size=BATCH, shuffle=True, collate_fn=fn)
    valid_loader = DataLoader(valid, batch_size=BATCH, shuffle=False, collate_fn=fn)

    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    steps = EPOCHS * len(train_loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, steps // 20, steps)

    best, step = math.inf, 0
    model.train()
    for epoch in range(EPOCHS):
        for batch in train_loader:
            batch = {k: v.to(DEVICE) for k, v in batch.items()}
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 10 == 0:
                used = torch.cuda.memory_allocated() / 2**30
                print(f"epoch {epoch} step {step}/{steps} loss {loss.item():.3f} mem {used:.1f} GiB", flush=True)
            if step % EVAL_EVERY == 0:
                val_loss, acc = validate(model, valid_loader)
                print(f"  valid loss {val_loss:.3f} token accuracy {acc:.3f}", flush=True)
                if val_loss < best:
                    best = val_loss
                    model.save_pretrained("outputs/best")
                    tokenizer.save_pretrained("outputs/best")


if __name__ == "__main__":
    main()
