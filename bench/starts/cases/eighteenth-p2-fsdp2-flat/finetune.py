# torchrun --nproc_per_node 4 finetune.py --data data/train.bin  (or plain python for 1 gpu)
import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer


class Packed(Dataset):
    """rows of seq_len tokens + labels (-100 on the prompt), made by pack.py"""

    def __init__(self, prefix, seq_len):
        self.ids = np.memmap(prefix + ".ids", dtype=np.int32, mode="r").reshape(-1, seq_len)
        self.lab = np.memmap(prefix + ".lab", dtype=np.int32, mode="r").reshape(-1, seq_len)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return (
            torch.from_numpy(self.ids[i].astype(np.int64)),
            torch.from_numpy(self.lab[i].astype(np.int64)),
        )


def make_optimizer(model, lr, wd):
    decay, nodecay = [], []
    for n, p in model.named_parameters():
        if not p.requires_grad:
            continue
        (nodecay if p.ndim < 2 else decay).append(p)
    return torch.optim.AdamW(
        [{"params": decay, "weight_decay": wd}, {"params": nodecay, "weight_decay": 0.0}],
        lr=lr,
        betas=(0.9, 0.95),
    )


def shard(model, mesh):
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=mp)
    fully_shard(model, mesh=mesh, mp_policy=mp)
    return model


def lr_at(step, total, peak, warmup):
    if step < warmup:
        return peak * (step + 1) / warmup
    t = (step - warmup) / max(1, total - warmup)
    return 0.1 * peak + 0.9 * peak * 0.5 * (1 + math.cos(math.pi * t))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="meta-llama/Llama-3.2-3B")
    ap.add_argument("--data", default="data/train")
    ap.add_argument("--seq_len", type=int, default=4096)
    ap.add_argument("--bs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--warmup", type=int, default=20)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--out", default="out")
    args = ap.parse_args()

    world = int(os.environ.get("WORLD_SIZE", 1))
    rank = int(os.environ.get("RANK", 0))
    local = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local)
    torch.manual_seed(1234)
    if world > 1:
        dist.init_process_group("nccl")

    model = AutoModelForCausalLM.from_pretrained(
        args.model, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()

    opt = make_optimizer(model, args.lr, wd=0.1)

    if world > 1:
        model = shard(model, init_device_mesh("cuda", (world,)))
    else:
        model.cuda()

    ds = Packed(args.data, args.seq_len)
    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(ds, batch_size=args.bs, sampler=sampler, num_workers=2, pin_memory=True, drop_last=True)
    total = len(loader) * args.epochs
    if rank == 0:
        print(f"world {world} rows {len(ds)} steps {total}", flush=True)

    step, t0 = 0, time.time()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for ids, lab in loader:
            for g in opt.param_groups:
                g["lr"] = lr_at(step, total, args.lr, args.warmup)
            ids, lab = ids.cuda(non_blocking=True), lab.cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=world == 1):
                loss = model(input_ids=ids, labels=lab).loss
            loss.backward()
            gnorm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if hasattr(gnorm, "full_tensor"):
                gnorm = gnorm.full_tensor()
            opt.step()
            model.zero_grad(set_to_none=True)
            step += 1
            if step % 10 == 0:
                l = loss.detach().clone()
                if world > 1:
                    dist.all_reduce(l, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(json.dumps({"step": step, "loss": round(l.item(), 4), "grad_norm": round(gnorm.item(), 3),
                                      "lr": opt.param_groups[0]["lr"], "sec": round(time.time() - t0, 1)}), flush=True)

    if world > 1:
        sd = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    else:
        sd = model.state_dict()
    if rank == 0:
        model.save_pretrained(args.out, state_dict=sd)
        AutoTokenizer.from_pretrained(args.model).save_pretrained(args.out)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
