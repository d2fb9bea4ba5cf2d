import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class ChatShard(Dataset):
    def __init__(self, path, tok, max_len, rank, world):
        self.items = []
        with open(path) as f:
            rows = [json.loads(l) for l in f]
        for row in rows[rank::world]:
            prompt = tok.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, tokenize=False)
            p = tok(prompt, add_special_tokens=False)["input_ids"]
            a = tok(row["messages"][-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
            if len(p) + len(a) > max_len:
                continue
            self.items.append((p + a, [-100] * len(p) + a))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch, pad_id):
    n = max(len(x) for x, _ in batch)
    ids, labels, mask = [], [], []
    for x, y in batch:
        k = n - len(x)
        ids.append(x + [pad_id] * k)
        labels.append(y + [-100] * k)
        mask.append([1] * len(x) + [0] * k)
    return {
        "input_ids": torch.tensor(ids),
        "labels": torch.tensor(labels),
        "attention_mask": torch.tensor(mask),
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--data", default="data/train.jsonl")
    ap.add_argument("--out", default="ckpt")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--bs", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--max-len", type=int, default=1536)
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1234)

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).cuda()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    model = DDP(model, device_ids=[local])

    ds = ChatShard(args.data, tok, args.max_len, rank, world)
    dl = DataLoader(ds, batch_size=args.bs, shuffle=True, drop_last=True, num_workers=4, pin_memory=True,
                    collate_fn=lambda b: collate(b, tok.pad_token_id))
    print(f"[rank {rank}] {len(ds)} examples, {len(dl)} batches", flush=True)

    total = len(dl) * args.epochs
    opt = AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)

    step = 0
    for epoch in range(args.epochs):
        model.train()
        t0 = time.time()
        for batch in dl:
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % 40 == 0:
                dt = (time.time() - t0) / 40
                t0 = time.time()
                print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} gn {gn.item():.2f} "
                      f"lr {sched.get_last_lr()[0]:.2e} {dt:.2f}s/it", flush=True)
        print(f"[rank {rank}] epoch {epoch} done", flush=True)
        dist.barrier()
        if rank == 0:
            model.module.save_pretrained(f"{args.out}/epoch{epoch}")
            tok.save_pretrained(f"{args.out}/epoch{epoch}")
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
