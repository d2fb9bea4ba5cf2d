"""Full fine-tune of Qwen2.5-3B on 4 x A100, plain DDP. bf16 autocast, fp32 master weights."""
import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class Packed(Dataset):
    """uint32 token blocks written by prepare.py; every document ends with eos."""

    def __init__(self, path, block):
        self.data = np.memmap(path, dtype=np.uint32, mode="r")
        self.block = block

    def __len__(self):
        return len(self.data) // self.block

    def __getitem__(self, i):
        chunk = self.data[i * self.block:(i + 1) * self.block].astype(np.int64)
        return torch.from_numpy(chunk)


def save(path, model, opt, sched, epoch, step):
    tmp = path + ".tmp"
    torch.save(
        {
            "model": model.module.state_dict(),
            "opt": opt.state_dict(),
            "sched": sched.state_dict(),
            "epoch": epoch,
            "step": step,
        },
        tmp,
    )
    os.replace(tmp, path)


def load(path, model, opt, sched):
    ckpt = torch.load(path)
    model.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    sched.load_state_dict(ckpt["sched"])
    return ckpt["epoch"], ckpt["step"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B")
    p.add_argument("--data", default="/data/tech-docs/train.bin")
    p.add_argument("--block", type=int, default=2048)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--accum", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--out", default="ckpt")
    p.add_argument("--resume", default="")
    args = p.parse_args()

    dist.init_process_group("nccl")
    rank = dist.get_rank()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    torch.manual_seed(1000 + rank)
    os.makedirs(args.out, exist_ok=True)

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.to(device)

    data = Packed(args.data, args.block)
    sampler = DistributedSampler(data, shuffle=True, seed=5, drop_last=True)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler, num_workers=4, pin_memory=True, drop_last=True)
    per_epoch = len(loader) // args.accum
    total = per_epoch * args.epochs

    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sched = get_cosine_schedule_with_warmup(opt, 100, total)

    start_epoch, step = 0, 0
    if args.resume:
        start_epoch, step = load(args.resume, model, opt, sched)
        if rank == 0:
            print(f"resumed {args.resume}: epoch {start_epoch}, step {step}", flush=True)

    model = DDP(model, device_ids=[local], gradient_as_bucket_view=True)
    model.train()

    for epoch in range(start_epoch, args.epochs):
        sampler.set_epoch(epoch)
        t0, seen = time.time(), 0.0
        for i, ids in enumerate(loader):
            if i >= per_epoch * args.accum:
                break
            ids = ids.to(device, non_blocking=True)
            last = (i + 1) % args.accum == 0
            model.require_backward_grad_sync = last
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
            (loss / args.accum).backward()
            seen += loss.item() / args.accum
            if not last:
                continue
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0 and rank == 0:
                dt = time.time() - t0
                print(
                    f"epoch {epoch} step {step}/{total} loss {seen:.4f} norm {norm.item():.3f} "
                    f"lr {sched.get_last_lr()[0]:.3e} {dt / 20:.2f}s/step "
                    f"mem {torch.cuda.max_memory_allocated() / 2**30:.1f}GiB",
                    flush=True,
                )
                t0 = time.time()
            seen = 0.0
        dist.barrier()
        if rank == 0:
            save(f"{args.out}/last.pt", model, opt, sched, epoch + 1, step)
            print(f"saved {args.out}/last.pt", flush=True)
        dist.barrier()

    if rank == 0:
        model.module.save_pretrained(f"{args.out}/final")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
