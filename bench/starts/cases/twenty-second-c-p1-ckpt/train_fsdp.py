import argparse
import functools
import json
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from checkpointing import save_checkpoint
from data import ChatDataset, collate


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--data", default="data/train.jsonl")
    p.add_argument("--out", default="out/qwen7b")
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--max-len", type=int, default=4096)
    p.add_argument("--save-every", type=int, default=250)
    return p.parse_args()


def main():
    args = parse()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(1234)

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Qwen2DecoderLayer}
        ),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=local_rank,
        use_orig_params=True,
    )

    ds = ChatDataset(args.data, tok, args.max_len)
    sampler = DistributedSampler(ds, shuffle=True, drop_last=True)
    dl = DataLoader(ds, batch_size=args.bs, sampler=sampler, num_workers=4, drop_last=True,
                    collate_fn=functools.partial(collate, pad_id=tok.pad_token_id))
    total = len(dl) // args.accum * args.epochs
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, betas=(0.9, 0.95))
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    if rank == 0:
        print(f"world={world} rows={len(ds)} steps={total}", flush=True)

    step, t0 = 0, time.time()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(dl):
            batch = {k: v.to(local_rank, non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss / args.accum
            loss.backward()
            if (i + 1) % args.accum:
                continue
            model.clip_grad_norm_(1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 10 == 0:
                avg = loss.detach() * args.accum
                dist.all_reduce(avg, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(json.dumps({"step": step, "loss": round(avg.item(), 4),
                                      "lr": sched.get_last_lr()[0],
                                      "s": round(time.time() - t0, 1)}), flush=True)
            if rank == 0 and step % args.save_every == 0:
                print(f"saving at {step}", flush=True)
                save_checkpoint(model, tok, f"{args.out}/step-{step}")
    if rank == 0:
        save_checkpoint(model, tok, f"{args.out}/final")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
