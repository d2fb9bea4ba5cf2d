import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class TokenFile(Dataset):
    """uint32 tokens in one flat file, cut into blocks"""

    def __init__(self, path, block):
        self.block = block
        self.data = np.memmap(path, dtype=np.uint32, mode="r")

    def __len__(self):
        return len(self.data) // self.block

    def __getitem__(self, i):
        x = self.data[i * self.block : (i + 1) * self.block].astype(np.int64)
        return torch.from_numpy(x)


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="meta-llama/Llama-3.2-3B")
    p.add_argument("--tokens", default="/data/norwegian_web.bin")
    p.add_argument("--block", type=int, default=4096)
    p.add_argument("--micro", type=int, default=2)
    p.add_argument("--accum", type=int, default=8)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--steps", type=int, default=12000)
    p.add_argument("--save-every", type=int, default=1000)
    p.add_argument("--dir", default="/ckpt/cpt-3b-no")
    p.add_argument("--resume", default=None)
    return p.parse_args()


def main():
    args = get_args()
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    torch.manual_seed(17)

    model = AutoModelForCausalLM.from_pretrained(
        args.base, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.config.use_cache = False
    model.to(device)
    model = DDP(model, device_ids=[local], gradient_as_bucket_view=True)

    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sched = get_cosine_schedule_with_warmup(opt, 200, args.steps)

    step, epoch = 0, 0
    if args.resume:
        if rank == 0:
            print(f"resuming from {args.resume}", flush=True)
        ckpt = torch.load(args.resume)
        model.module.load_state_dict(ckpt["model"])
        opt.load_state_dict(ckpt["optimizer"])
        sched.load_state_dict(ckpt["scheduler"])
        step, epoch = ckpt["step"], ckpt["epoch"]
        del ckpt
        torch.cuda.empty_cache()

    ds = TokenFile(args.tokens, args.block)
    sampler = DistributedSampler(ds, shuffle=True, seed=17)
    dl = DataLoader(ds, batch_size=args.micro, sampler=sampler, num_workers=4, pin_memory=True, drop_last=True)

    skip = step * args.accum - epoch * (len(dl) // args.accum * args.accum)
    model.train()
    while step < args.steps:
        sampler.set_epoch(epoch)
        acc = 0.0
        for i, x in enumerate(dl, 1):
            if i <= skip:
                continue
            x = x.to(device, non_blocking=True)
            last = i % args.accum == 0
            model.require_backward_grad_sync = last
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=x, labels=x).loss / args.accum
            loss.backward()
            acc += loss.detach().item()
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % 50 == 0:
                peak = torch.cuda.max_memory_allocated() / 2**30
                print(f"step {step} loss {acc:.4f} lr {sched.get_last_lr()[0]:.3e} mem {peak:.2f}GiB", flush=True)
            acc = 0.0
            if step % args.save_every == 0:
                if rank == 0:
                    torch.save(
                        {
                            "model": model.module.state_dict(),
                            "optimizer": opt.state_dict(),
                            "scheduler": sched.state_dict(),
                            "step": step,
                            "epoch": epoch,
                        },
                        f"{args.dir}/step{step}.pt",
                    )
                dist.barrier()
            if step >= args.steps:
                break
        epoch += 1
        skip = 0
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
