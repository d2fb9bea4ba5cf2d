import argparse
import json
import math
import os
import random
import time

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

p = argparse.ArgumentParser()
p.add_argument("--model", default="HuggingFaceTB/SmolLM2-360M-Instruct")
p.add_argument("--data", default="data/train.jsonl")
p.add_argument("--epochs", type=int, default=10)
p.add_argument("--bs", type=int, default=8)
p.add_argument("--lr", type=float, default=2e-5)
p.add_argument("--max-len", type=int, default=1024)
args = p.parse_args()

random.seed(0)
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
device = "cuda"

tok = AutoTokenizer.from_pretrained(args.model)


class Chats(Dataset):
    def __init__(self, path):
        self.rows = []
        for line in open(path):
            msgs = json.loads(line)["messages"]
            prompt = tok.apply_chat_template(msgs[:-1], add_generation_prompt=True, tokenize=False)
            full = tok.apply_chat_template(msgs, tokenize=False)
            p_ids = tok(prompt, add_special_tokens=False).input_ids
            ids = tok(full, add_special_tokens=False).input_ids[: args.max_len]
            labels = [-100] * len(p_ids) + ids[len(p_ids):]
            self.rows.append((ids, labels))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    ids = pad_sequence([torch.tensor(b[0]) for b in batch], batch_first=True, padding_value=tok.pad_token_id)
    labels = pad_sequence([torch.tensor(b[1]) for b in batch], batch_first=True, padding_value=-100)
    mask = pad_sequence([torch.ones(len(b[0]), dtype=torch.long) for b in batch], batch_first=True)
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(device)
n = sum(x.numel() for x in model.parameters())
model = torch.compile(model, dynamic=True)
print(f"model {n / 1e6:.1f}M params, compiled")

ds = Chats(args.data)
dl = DataLoader(ds, batch_size=args.bs, shuffle=True, collate_fn=collate, drop_last=True)
print(f"{len(ds)} rows, {len(dl)} batches per epoch")

opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01)
total = args.epochs * len(dl)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 5) * max(0.02, 1 - s / total))

model.train()
step, t0, seen = 0, time.time(), 0
for epoch in range(args.epochs):
    for batch in dl:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        gnorm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        seen += batch["attention_mask"].sum().item()
        if step >= 10 and step % 5 == 0:
            dt = time.time() - t0
            print(f"step {step:4d} | loss {loss.item():.4f} | lr {sched.get_last_lr()[0]:.2e} "
                  f"| gnorm {gnorm.item():.2f} | {seen / dt / 1000:.1f}k tok/s")
            t0, seen = time.time(), 0

os.makedirs("ckpt", exist_ok=True)
state = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
torch.save(state, "ckpt/final.pt")
print(f"saved ckpt/final.pt ({os.path.getsize('ckpt/final.pt') / 1e9:.2f} GB)")
