"""Full fine-tune of Qwen2.5-1.5B-Instruct on the support tickets, 2x A100.

torchrun --standalone --nproc_per_node=2 finetune_ddp.py --out /scratch/runs/tickets-v4
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


class Tickets(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = []
        with open(path) as f:
            for line in f:
                m = json.loads(line)["messages"]
                prompt = tok.apply_chat_template(m[:-1], tokenize=False, add_generation_prompt=True)
                full = prompt + m[-1]["content"] + "<|im_end|>\n"
                p = tok(prompt, add_special_tokens=False)["input_ids"]
                ids = tok(full, add_special_tokens=False)["input_ids"][:max_len]
                labels = [-100] * len(p) + ids[len(p):]
                self.rows.append((ids, labels[:len(ids)]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad):
    n = max(len(x) for x, _ in batch)
    ids = torch.full((len(batch), n), pad)
    lab = torch.full((len(batch), n), -100)
    att = torch.zeros((len(batch), n), dtype=torch.long)
    for i, (x, y) in enumerate(batch):
        ids[i, :len(x)] = torch.tensor(x)
        lab[i, :len(y)] = torch.tensor(y)
        att[i, :len(x)] = 1
    return {"input_ids": ids, "attention_mask": att, "labels": lab}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="shards")
    ap.add_argument("--out", required=True)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--bs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--max_len", type=int, default=2048)
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1234 + rank)

    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32).to(local)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    model = DDP(model, device_ids=[local])

    ds = Tickets(os.path.join(args.data, f"shard-{rank:02d}.jsonl"), tok, args.max_len)
    loader = DataLoader(ds, batch_size=args.bs, shuffle=True, drop_last=True, num_workers=2,
                        collate_fn=lambda b: collate(b, tok.pad_token_id))

    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01)
    total = args.epochs * len(loader)
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

    step = 0
    for epoch in range(args.epochs):
        model.train()
        t0 = time.time()
        for batch in loader:
            batch = {k: v.to(local, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % 2 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.3e} "
                      f"{(time.time() - t0):.1f}s", flush=True)
        dist.barrier()
        if rank == 0:
            path = os.path.join(args.out, f"epoch-{epoch}")
            model.module.save_pretrained(path)
            tok.save_pretrained(path)
            print(f"saved {path}", flush=True)
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
