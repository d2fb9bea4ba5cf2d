"""continued pretraining on the statutes corpus, DDP, 8x A100 40GB"""
import os, sys, time, math, glob
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "HuggingFaceTB/SmolLM2-1.7B"
BLOCK = 2048
MICRO = 2
ACCUM = 8
LR = 2e-5
MIN_LR = 2e-6
WARMUP = 200
STEPS = 6000
SAVE_EVERY = 500
OUT = "/data/runs/statutes"


def lr_at(it):
    if it < WARMUP:
        return LR * (it + 1) / WARMUP
    r = (it - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * r)) * (LR - MIN_LR)


class Blocks:
    """tokens.bin: uint16, documents joined by EOS"""

    def __init__(self, path, rank, world, seed):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.rng = np.random.default_rng(seed + 1000 * rank)

    def next(self, device):
        ix = self.rng.integers(0, len(self.data) - BLOCK, size=MICRO)
        x = torch.stack([torch.from_numpy(self.data[i:i + BLOCK].astype(np.int64)) for i in ix])
        return x.pin_memory().to(device, non_blocking=True)


def latest():
    c = sorted(glob.glob(f"{OUT}/step*.pt"))
    return c[-1] if c else None


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = True

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa").to(device)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    start = 0
    if "--resume" in sys.argv and latest():
        ck = torch.load(latest(), weights_only=True)
        model.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        start = ck["step"]
        del ck
        torch.cuda.empty_cache()
        if rank == 0:
            print("resumed at", start, flush=True)

    model.train()
    model = DDP(model, device_ids=[local], gradient_as_bucket_view=True)
    data = Blocks("/data/statutes/tokens.bin", rank, world, seed=start)

    t = time.time()
    for it in range(start, STEPS):
        for g in opt.param_groups:
            g["lr"] = lr_at(it)
        total = torch.zeros((), device=device)
        for k in range(ACCUM):
            x = data.next(device)
            model.require_backward_grad_sync = k == ACCUM - 1
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=x, labels=x).loss / ACCUM
            loss.backward()
            total += loss.detach()
        gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if (it + 1) % 20 == 0:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
            if rank == 0:
                print(f"it {it+1} loss {total.item():.4f} gn {gn.item():.3f} lr {lr_at(it):.3e} "
                      f"{(time.time()-t)/20*1000:.0f} ms mem {torch.cuda.max_memory_allocated()/2**30:.1f} GiB", flush=True)
            t = time.time()
        if (it + 1) % SAVE_EVERY == 0:
            if rank == 0:
                torch.save({"model": model.module.state_dict(), "opt": opt.state_dict(), "step": it + 1},
                           f"{OUT}/step{it+1:06d}.pt")
            dist.barrier()
    if rank == 0:
        model.module.save_pretrained(f"{OUT}/final")
        AutoTokenizer.from_pretrained(MODEL).save_pretrained(f"{OUT}/final")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
