"""Continue GPT-2 on the token files of prepare.py (uint16 memmap)."""
import math
import os
import time

import numpy as np
import torch
from transformers import GPT2LMHeadModel

data_dir = "data/wiki_no"
out_dir = "out-wiki-no"
block_size = 1024
batch_size = 12
grad_accum = 8
max_iters = 20_000
warmup_iters = 500
learning_rate = 1e-4
min_lr = 1e-5
eval_interval = 500
eval_iters = 100
device = "cuda"
ctx = torch.autocast(device_type="cuda", dtype=torch.bfloat16)

torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True


def get_batch(split):
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x, y


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


model = GPT2LMHeadModel.from_pretrained("openai-community/gpt2").to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)


def step_loss(split):
    x, y = get_batch(split)
    with ctx:
        loss = model(input_ids=x, labels=y).loss
    return loss


@torch.no_grad()
def estimate():
    model.eval()
    out = {s: torch.stack([step_loss(s) for _ in range(eval_iters)]).mean().item() for s in ("train", "val")}
    model.train()
    return out


model.train()
best = float("inf")
t0 = time.time()
for it in range(max_iters):
    for g in optimizer.param_groups:
        g["lr"] = get_lr(it)
    if it % eval_interval == 0:
        losses = estimate()
        print(f"iter {it}: train {losses['train']:.4f} val {losses['val']:.4f} ({time.time() - t0:.0f}s)")
        if losses["val"] < best:
            best = losses["val"]
            model.save_pretrained(out_dir)
    for _ in range(grad_accum):
        loss = step_loss("train") / grad_accum
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
