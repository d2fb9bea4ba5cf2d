"""Fine-tune Qwen2.5-0.5B on parcel complaints -> structured reply. Plain PyTorch, one RTX 3090."""
import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

SYSTEM = "You answer complaints about parcels. Name the depot, the next step and the day."


class Complaints(Dataset):
    def __init__(self, path, tokenizer, max_length=1024):
        self.rows = []
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            prompt = tokenizer.apply_chat_template(
                [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["complaint"]}],
                tokenize=False,
                add_generation_prompt=True,
            )
            answer = row["reply"] + "<|im_end|>\n"
            p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            a = tokenizer(answer, add_special_tokens=False)["input_ids"]
            if len(p) + len(a) > max_length:
                continue
            # the prompt carries no loss; the model shifts labels itself
            self.rows.append({"input_ids": p + a, "labels": [-100] * len(p) + a})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad_id):
    width = max(len(r["input_ids"]) for r in batch)
    ids, labels, mask = [], [], []
    for r in batch:
        gap = width - len(r["input_ids"])
        ids.append(r["input_ids"] + [pad_id] * gap)
        labels.append(r["labels"] + [-100] * gap)
        mask.append([1] * len(r["input_ids"]) + [0] * gap)
    return {
        "input_ids": torch.tensor(ids),
        "labels": torch.tensor(labels),
        "attention_mask": torch.tensor(mask),
    }


def validate(model, loader, device):
    """Mean loss over the validation set."""
    model.eval()
    val_loss = 0.0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(**batch, use_cache=False)
        val_loss += out.loss
    model.train()
    return (val_loss / len(loader)).item()


def save(model, tokenizer, folder, step):
    target = Path(folder) / f"step-{step:05d}"
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    print(f"saved {target}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    ap.add_argument("--train", default="data/train.jsonl")
    ap.add_argument("--valid", default="data/valid.jsonl")
    ap.add_argument("--out", default="runs/parcel-05b")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--accumulate", type=int, default=4)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--valid-every", type=int, default=250)
    args = ap.parse_args()

    random.seed(7)
    torch.manual_seed(7)
    device = torch.device("cuda")

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32).to(device)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    model.train()

    train_set = Complaints(args.train, tokenizer)
    valid_set = Complaints(args.valid, tokenizer)
    print(f"{len(train_set)} training rows, {len(valid_set)} validation rows", flush=True)

    pad = tokenizer.pad_token_id
    train_loader = DataLoader(train_set, args.batch, shuffle=True, collate_fn=lambda b: collate(b, pad))
    valid_loader = DataLoader(valid_set, args.batch, shuffle=False, collate_fn=lambda b: collate(b, pad))

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    updates = math.ceil(len(train_loader) / args.accumulate) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * updates), updates)

    step, running, started = 0, 0.0, time.time()
    for epoch in range(args.epochs):
        for i, batch in enumerate(train_loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch, use_cache=False).loss / args.accumulate
            loss.backward()
            running += loss.item()

            if (i + 1) % args.accumulate and i + 1 < len(train_loader):
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1

            if step % 25 == 0:
                used = torch.cuda.memory_allocated() / 2**30
                print(
                    f"epoch {epoch} step {step}/{updates} loss {running / 25:.4f} "
                    f"lr {scheduler.get_last_lr()[0]:.2e} mem {used:.2f}GiB {time.time() - started:.0f}s",
                    flush=True,
                )
                running = 0.0
            if step % args.valid_every == 0:
                print(f"valid loss {validate(model, valid_loader, device):.4f}", flush=True)
                save(model, tokenizer, args.out, step)

    save(model, tokenizer, args.out, step)


if __name__ == "__main__":
    main()
