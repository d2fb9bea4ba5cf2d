import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import news_loader


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--name", default="Qwen/Qwen2.5-0.5B")
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--lr", type=float, default=1e-5)
    a = ap.parse_args()
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)

    tok = AutoTokenizer.from_pretrained(a.name)
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(a.name, dtype=torch.float32).to(gpu)
    model = DDP(model, device_ids=[gpu])
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01)
    loader = news_loader(tok, batch_size=8)

    model.train()
    for step, batch in zip(range(a.steps), loader):
        batch = {k: v.to(gpu) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if dist.get_rank() == 0 and step % 50 == 0:
            print(step, loss.item(), flush=True)
    if dist.get_rank() == 0:
        model.module.save_pretrained("out/news")
        tok.save_pretrained("out/news")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
