import argparse
import glob
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class PackedDocs(IterableDataset):
    """Reads jsonl shards, joins documents with EOS and cuts blocks of `block` tokens."""

    def __init__(self, pattern, tokenizer, block, rank, world):
        self.files = sorted(glob.glob(pattern))
        self.tok = tokenizer
        self.block = block
        self.rank = rank
        self.world = world

    def docs(self):
        n = 0
        for path in self.files:
            with open(path, encoding="utf-8") as f:
                for line in f:
                    if n % self.world == self.rank:
                        yield json.loads(line)["text"]
                    n += 1

    def __iter__(self):
        buf = []
        for text in self.docs():
            if len(text) < 200:
                continue
            buf.extend(self.tok(text, add_special_tokens=False)["input_ids"])
            buf.append(self.tok.eos_token_id)
            while len(buf) >= self.block:
                ids = torch.tensor(buf[: self.block])
                buf = buf[self.block :]
                yield {"input_ids": ids, "labels": ids.clone()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B")
    p.add_argument("--data", default="data/*.jsonl")
    p.add_argument("--block", type=int, default=2048)
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--total-steps", type=int, default=2460)
    p.add_argument("--out", default="ckpt")
    args = p.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = DDP(model.cuda(local), device_ids=[local])
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, betas=(0.9, 0.95))
    sched = get_cosine_schedule_with_warmup(opt, 50, args.planned_steps)

    data = PackedDocs(args.data, tok, args.block, rank, world)
    loader = DataLoader(data, batch_size=args.bs, num_workers=1, pin_memory=True, drop_last=True)

    step = 0
    for epoch in range(args.epochs):
        model.train()
        t0, in_epoch = time.time(), 0
        for batch in loader:
            batch = {k: v.cuda(local, non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            in_epoch += 1
            if rank == 0 and step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e} {50 / (time.time() - t0):.2f} it/s", flush=True)
                t0 = time.time()
        print(f"[rank {rank}] epoch {epoch} finished after {in_epoch} steps", flush=True)
        dist.barrier()
        if rank == 0:
            model.module.save_pretrained(f"{args.out}/epoch-{epoch}")
            tok.save_pretrained(f"{args.out}/epoch-{epoch}")
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
