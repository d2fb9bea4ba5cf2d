import argparse
import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def build_loader(path, tok, batch_size, max_len):
    ds = load_dataset("json", data_files=path, split="train")

    def collate(rows):
        enc = tok(
            [r["text"] + tok.eos_token for r in rows],
            padding=True, truncation=True, max_length=max_len, return_tensors="pt", add_special_tokens=False,
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    sampler = DistributedSampler(ds, shuffle=True, drop_last=True)
    return DataLoader(ds, batch_size=batch_size, sampler=sampler, collate_fn=collate, num_workers=4), sampler


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-0.5B")
    p.add_argument("--data", default="tales.jsonl")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--out", default="out/tales")
    args = p.parse_args()

    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    tok = AutoTokenizer.from_pretrained(args.base)
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32).to(local)
    model = DDP(model, device_ids=[local])
    loader, sampler = build_loader(args.data, tok, 8, 1024)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = len(loader) * args.epochs
    sched = get_cosine_schedule_with_warmup(opt, total // 20, total)

    model.train()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            batch = {k: v.to(local) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model.module(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            if dist.get_rank() == 0 and step % 25 == 0:
                print(f"{epoch} {step} {loss.item():.4f}", flush=True)

    if dist.get_rank() == 0:
        model.module.save_pretrained(args.out)
        tok.save_pretrained(args.out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
