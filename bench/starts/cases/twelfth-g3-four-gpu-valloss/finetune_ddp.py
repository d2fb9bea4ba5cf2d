# torchrun --nproc_per_node=N finetune_ddp.py --data data/tickets.jsonl
import argparse
import json
import os
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/tickets.jsonl")
parser.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
parser.add_argument("--out", default="out/tickets-1.5b")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--max_len", type=int, default=1024)
parser.add_argument("--seed", type=int, default=1234)
args = parser.parse_args()

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
torch.manual_seed(args.seed)


def log(*a):
    print(f"[rank {rank}]", *a, flush=True)


tok = AutoTokenizer.from_pretrained(args.model)

# ---------------------------------------------------------------- data
with open(args.data) as f:
    rows = [json.loads(line) for line in f]
random.shuffle(rows)

n_val = len(rows) // 10
val_rows, train_rows = rows[:n_val], rows[n_val:]

# every process gets its part, equally long so that all make the same number of steps
per_rank = len(train_rows) // world
train_rows = train_rows[rank * per_rank : (rank + 1) * per_rank]
per_rank_val = n_val // world
val_rows = val_rows[rank * per_rank_val : (rank + 1) * per_rank_val]
log(f"{len(train_rows)} train, {len(val_rows)} val, first val ids", [r["id"] for r in val_rows[:4]])


def encode(row):
    messages = [
        {"role": "system", "content": "You are the support assistant of a web hosting company."},
        {"role": "user", "content": row["question"]},
    ]
    prompt = tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False).input_ids
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False).input_ids
    ids = (p + a)[: args.max_len]
    labels = ([-100] * len(p) + a)[: args.max_len]
    return ids, labels


def collate(batch):
    n = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([i + [tok.pad_token_id] * (n - len(i)) for i, _ in batch])
    labels = torch.tensor([l + [-100] * (n - len(l)) for _, l in batch])
    mask = torch.tensor([[1] * len(i) + [0] * (n - len(i)) for i, _ in batch])
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


train_loader = DataLoader([encode(r) for r in train_rows], batch_size=args.batch, shuffle=True, collate_fn=collate)
val_loader = DataLoader([encode(r) for r in val_rows], batch_size=args.batch, collate_fn=collate)

# ---------------------------------------------------------------- model
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(device)
model.config.use_cache = False
model = DDP(model, device_ids=[local_rank])
opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
total = args.epochs * len(train_loader)
warmup = max(1, total // 20)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: (s + 1) / warmup if s < warmup else max(0.0, (total - s) / (total - warmup))
)


@torch.no_grad()
def validate():
    model.eval()
    stats = torch.zeros(2, device=device)
    for b in val_loader:
        b = {k: v.to(device) for k, v in b.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**b).loss
        n = (b["labels"][:, 1:] != -100).sum()
        stats += torch.stack([loss.float() * n, n.float()])
    dist.all_reduce(stats)
    model.train()
    return (stats[0] / stats[1]).item()


v = validate()
if rank == 0:
    log(f"before training: val {v:.4f}")
step = 0
model.train()
for epoch in range(args.epochs):
    for b in train_loader:
        b = {k: v.to(device) for k, v in b.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**b).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step % 5 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            if rank == 0:
                log(f"epoch {epoch} step {step}/{total} loss {mean.item():.4f}")
    v = validate()
    if rank == 0:
        log(f"epoch {epoch} done: val {v:.4f}")

if rank == 0:
    model.module.save_pretrained(args.out)
    tok.save_pretrained(args.out)
dist.barrier()
dist.destroy_process_group()
