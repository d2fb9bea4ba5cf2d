"""Fine-tune Qwen2.5-1.5B on our archive of business letters (two A6000).

    torchrun --standalone --nproc_per_node=2 train_ddp.py --data data/letters.jsonl --out ckpt/letters
"""
import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

IGNORE = -100


class Letters(Dataset):
    """One letter a row: {"request": ..., "letter": ...}; only the letter is learned."""

    def __init__(self, path, tokenizer, max_length):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f if line.strip()]
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": row["request"]}], tokenize=False, add_generation_prompt=True
        )
        answer = row["letter"] + "<|im_end|>\n"
        p = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        a = self.tokenizer(answer, add_special_tokens=False)["input_ids"]
        ids = (p + a)[: self.max_length]
        labels = ([IGNORE] * len(p) + a)[: self.max_length]
        return ids, labels


class Pad:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, batch):
        n = max(len(ids) for ids, _ in batch)
        input_ids, labels, mask = [], [], []
        for ids, lab in batch:
            k = n - len(ids)
            input_ids.append(ids + [self.pad_id] * k)
            labels.append(lab + [IGNORE] * k)
            mask.append([1] * len(ids) + [0] * k)
        return {
            "input_ids": torch.tensor(input_ids),
            "labels": torch.tensor(labels),
            "attention_mask": torch.tensor(mask),
        }


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--max-length", type=int, default=1536)
    return p.parse_args()


def main():
    args = parse()
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    world = dist.get_world_size()
    device = torch.device("cuda")
    torch.manual_seed(13 + rank)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    model.to(device)
    model = DDP(model)

    data = Letters(args.data, tokenizer, args.max_length)
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True, seed=13)
    loader = DataLoader(
        data, batch_size=args.batch, sampler=sampler, collate_fn=Pad(tokenizer.pad_token_id), num_workers=2, pin_memory=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = args.epochs * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)

    step, seen, t0 = 0, 0.0, time.time()
    model.train()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            seen += loss.item()
            if rank == 0 and step % 20 == 0:
                print(f"epoch {epoch} step {step}/{total} loss {seen / 20:.4f} lr {scheduler.get_last_lr()[0]:.2e} {time.time() - t0:.0f}s", flush=True)
                seen = 0.0

    dist.barrier()
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        model.module.config.use_cache = True
        model.module.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
