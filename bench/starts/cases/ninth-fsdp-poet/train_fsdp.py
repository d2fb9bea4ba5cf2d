"""Continued pre-training of Llama 3.2 3B on public-domain verse, FSDP, own loop.

torchrun --nproc_per_node 8 train_fsdp.py --data verse.bin --steps 4000
Training itself is fine. At step 500 the progress stands still, all cards show 100 %,
and half an hour later the watchdog ends the job.
"""
import argparse
import functools
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


class Blocks(Dataset):
    """Consecutive blocks of a flat uint32 file of token ids."""

    def __init__(self, path, length):
        self.ids = np.memmap(path, dtype=np.uint32, mode="r")
        self.length = length

    def __len__(self):
        return len(self.ids) // self.length

    def __getitem__(self, n):
        x = torch.from_numpy(self.ids[n * self.length:(n + 1) * self.length].astype(np.int64))
        return {"input_ids": x, "labels": x.clone()}


def rate(step, args):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    t = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * t)))


def save(model, tokenizer, step, args):
    folder = os.path.join(args.out, f"step-{step:05d}")
    os.makedirs(folder, exist_ok=True)
    policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        state = model.state_dict()
    torch.save(state, os.path.join(folder, "pytorch_model.bin"))
    tokenizer.save_pretrained(folder)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.2-3B")
    p.add_argument("--data", default="verse.bin")
    p.add_argument("--out", default="out-verse")
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--save-every", type=int, default=500)
    args = p.parse_args()

    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1234)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.config.use_cache = False
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model = FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}
        ),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
        ),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=local,
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    data = Blocks(args.data, args.length)
    sampler = DistributedSampler(data, shuffle=True, seed=5, drop_last=True)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler, num_workers=2, pin_memory=True, drop_last=True)

    step, epoch, began = 0, 0, time.time()
    model.train()
    while step < args.steps:
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(local, non_blocking=True) for k, v in batch.items()}
            for group in optimizer.param_groups:
                group["lr"] = rate(step, args)
            loss = model(**batch).loss
            loss.backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1

            if step % 20 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(f"step {step} loss {mean.item():.4f} lr {rate(step, args):.2e} {time.time() - began:.0f}s", flush=True)
            if step % args.save_every == 0 and rank == 0:
                save(model, tokenizer, step, args)
            if step >= args.steps:
                break
        epoch += 1

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
