import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser


@dataclass
class Settings:
    base: str = "Qwen/Qwen2.5-1.5B"
    files: str = "manuals/*.jsonl"
    block: int = 1024
    batch: int = 4
    lr: float = 1e-5
    epochs: int = 1
    out: str = "out/manuals"


def setup():
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    return dist.get_rank(), dist.get_world_size(), torch.device("cuda", local)


def packed(cfg, tok):
    ds = load_dataset("json", data_files=cfg.files, split="train")

    def join(batch):
        ids = []
        for t in batch["text"]:
            ids += tok(t, add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
        n = len(ids) // cfg.block * cfg.block
        return {"input_ids": [ids[i : i + cfg.block] for i in range(0, n, cfg.block)]}

    return ds.map(join, batched=True, batch_size=1000, remove_columns=ds.column_names).with_format("torch")


def main():
    (cfg,) = HfArgumentParser(Settings).parse_args_into_dataclasses()
    rank, world, device = setup()
    tok = AutoTokenizer.from_pretrained(cfg.base)
    model = AutoModelForCausalLM.from_pretrained(cfg.base, dtype=torch.float32).to(device)
    ds = packed(cfg, tok)
    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(ds, batch_size=cfg.batch, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1)

    model.train()
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            ids = batch["input_ids"].to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 50 == 0:
                shown = loss.detach().clone()
                dist.all_reduce(shown, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(f"{epoch}/{step} loss {shown.item():.4f}", flush=True)

    dist.barrier()
    if rank == 0:
        model.save_pretrained(cfg.out)
        tok.save_pretrained(cfg.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
