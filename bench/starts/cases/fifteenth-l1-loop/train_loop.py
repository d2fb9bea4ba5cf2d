import argparse
import logging
import math
import time

import torch
from datasets import load_dataset
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("train")

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="meta-llama/Llama-3.2-1B-Instruct")
ap.add_argument("--data", default="notes.jsonl")
ap.add_argument("--lr", type=float, default=2e-5)
ap.add_argument("--epochs", type=int, default=3)
ap.add_argument("--bs", type=int, default=4)
ap.add_argument("--accum", type=int, default=4)
ap.add_argument("--max-len", type=int, default=1024)
args = ap.parse_args()

torch.manual_seed(1)
device = torch.device("cuda")
tokenizer = AutoTokenizer.from_pretrained(args.model)
PAD = tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>")


def encode(row):
    user = [{"role": "user", "content": row["note"]}]
    prompt = tokenizer.apply_chat_template(user, add_generation_prompt=True, return_dict=False)
    answer = tokenizer(row["summary"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    ids = (prompt + answer)[: args.max_len]
    return {"ids": ids, "labels": ([-100] * len(prompt) + answer)[: args.max_len]}


def collate(rows):
    n = max(len(r["ids"]) for r in rows)
    ids = torch.full((len(rows), n), PAD)
    labels = torch.full((len(rows), n), -100)
    mask = torch.zeros((len(rows), n), dtype=torch.long)
    for i, r in enumerate(rows):
        k = len(r["ids"])
        ids[i, :k] = torch.tensor(r["ids"])
        labels[i, :k] = torch.tensor(r["labels"])
        mask[i, :k] = 1
    return ids.to(device), mask.to(device), labels.to(device)


raw = load_dataset("json", data_files=args.data, split="train").train_test_split(0.05, seed=1)
data = raw.map(encode, remove_columns=raw["train"].column_names)
train_dl = DataLoader(data["train"], args.bs, shuffle=True, collate_fn=collate, drop_last=True)
val_dl = DataLoader(data["test"], args.bs, collate_fn=collate)

model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
total = args.epochs * (len(train_dl) // args.accum)
scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
log.info("%d train rows, %d val rows, %d optimizer steps", len(data["train"]), len(data["test"]), total)


@torch.no_grad()
def evaluate():
    model.eval()
    losses = []
    for ids, mask, labels in val_dl:
        with torch.autocast("cuda", torch.bfloat16):
            losses.append(model(input_ids=ids, attention_mask=mask, labels=labels).loss.item())
    model.train()
    return sum(losses) / len(losses)


model.train()
step, running, t0 = 0, 0.0, time.time()
log.info("step 0 val_loss %.4f", evaluate())
for epoch in range(args.epochs):
    for i, (ids, mask, labels) in enumerate(train_dl):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        (loss / args.accum).backward()
        running += loss.item() / args.accum
        if (i + 1) % args.accum == 0:
            norm = clip_grad_norm_(model.parameters(), 1.0)
            optimizer.zero_grad(set_to_none=True)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 10 == 0:
                log.info(
                    "epoch %d step %d/%d loss %.4f grad_norm %.3f lr %.2e (%.1f s)",
                    epoch, step, total, running / 10, norm, scheduler.get_last_lr()[0], time.time() - t0,
                )
                running = 0.0
    val = evaluate()
    log.info("epoch %d done, val_loss %.4f ppl %.2f", epoch, val, math.exp(val))
    model.save_pretrained(f"ckpt/epoch{epoch}")
    tokenizer.save_pretrained(f"ckpt/epoch{epoch}")
