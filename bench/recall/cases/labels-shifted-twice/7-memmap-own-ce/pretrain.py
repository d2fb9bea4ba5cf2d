import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from tokens import TokenStream


def lm_loss(model, x, y):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(input_ids=x).logits
    return F.cross_entropy(logits.float().view(-1, logits.size(-1)), y.reshape(-1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="openai-community/gpt2-medium")
    p.add_argument("--data", default="data/law")
    p.add_argument("--iters", type=int, default=8000)
    p.add_argument("--lr", type=float, default=5e-5)
    p.add_argument("--accum", type=int, default=4)
    a = p.parse_args()

    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.float32).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.95), weight_decay=0.1)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=a.lr, total_steps=a.iters, pct_start=0.03)
    train = TokenStream(os.path.join(a.data, "train.bin"), block=1024, batch=8)
    val = TokenStream(os.path.join(a.data, "val.bin"), block=1024, batch=8)

    model.train()
    for it in range(a.iters):
        for _ in range(a.accum):
            x, y = train.next()
            (lm_loss(model, x, y) / a.accum).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if it % 250 == 0:
            model.eval()
            with torch.no_grad():
                v = np.mean([lm_loss(model, *val.next()).item() for _ in range(40)])
            model.train()
            print(f"{it} val {v:.4f}")
    model.save_pretrained("out/law-gpt2")


if __name__ == "__main__":
    main()
