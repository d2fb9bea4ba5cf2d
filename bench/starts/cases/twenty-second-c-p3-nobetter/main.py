import itertools
import os
import sys
from functools import partial

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from loop import Loop
from rows import Rows, pad_batch

MODEL = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
EPOCHS, BS, ACCUM, LR = 3, 8, 2, 2e-5

local = int(os.environ.get("LOCAL_RANK", 0))
world = int(os.environ.get("WORLD_SIZE", 1))
device = torch.device("cuda", local)
torch.cuda.set_device(device)
if world > 1:
    dist.init_process_group("nccl", device_id=device)
rank = dist.get_rank() if world > 1 else 0
torch.manual_seed(7)

tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).to(device)
model.config.use_cache = False
if world > 1:
    model = DDP(model, device_ids=[local])

train, val = Rows("data/train.jsonl", tok, 2048), Rows("data/val.jsonl", tok, 2048)
sampler = DistributedSampler(train, num_replicas=world, rank=rank, shuffle=True, seed=7, drop_last=True)
fn = partial(pad_batch, pad=tok.pad_token_id)
dl = DataLoader(train, BS, sampler=sampler, collate_fn=fn, num_workers=4, drop_last=True)
vl = DataLoader(val, BS, collate_fn=fn)

steps = len(dl) // ACCUM * EPOCHS
opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
loop = Loop(model, opt, get_cosine_schedule_with_warmup(opt, steps // 20, steps), device, ACCUM)
if rank == 0:
    print(f"world {world} rows {len(train)} steps {steps}", flush=True)

done = 0
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    it = iter(dl)
    while len(mbs := list(itertools.islice(it, ACCUM))) == ACCUM:
        loss, gn = loop.step(mbs)
        done += 1
        if done % 20 == 0:
            print(f"[rank {rank}] epoch {epoch} step {done}/{steps} loss {loss:.4f} gn {gn:.3f}", flush=True)
    ev = loop.evaluate(vl)
    print(f"[rank {rank}] epoch {epoch} eval_loss {ev:.4f}", flush=True)
if rank == 0:
    loop.net.save_pretrained("out/final")
    tok.save_pretrained("out/final")
if world > 1:
    dist.destroy_process_group()
sys.exit(0)
