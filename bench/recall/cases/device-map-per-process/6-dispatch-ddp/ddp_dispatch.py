import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import dispatch_model, infer_auto_device_map
from accelerate.utils import get_balanced_memory
from datasets import load_dataset
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME = "Qwen/Qwen2.5-1.5B"


def build():
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
    block = model._no_split_modules
    limits = get_balanced_memory(model, no_split_module_classes=block)
    where = infer_auto_device_map(model, max_memory=limits, no_split_module_classes=block)
    return dispatch_model(model, device_map=where)


def loader(tok, rank, world):
    ds = load_dataset("json", data_files="notes.jsonl", split="train")

    def collate(rows):
        enc = tok(
            [r["text"] + tok.eos_token for r in rows],
            padding=True, truncation=True, max_length=1024, return_tensors="pt", add_special_tokens=False,
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, seed=5)
    return DataLoader(ds, batch_size=4, sampler=sampler, collate_fn=collate), sampler


def worker(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    tok = AutoTokenizer.from_pretrained(NAME)
    tok.padding_side = "right"
    model = DDP(build())
    dl, sampler = loader(tok, rank, world)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.train()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(dl):
            batch = {k: v.to(rank) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            if rank == 0 and step % 25 == 0:
                print(epoch, step, round(loss.item(), 4), flush=True)
    if rank == 0:
        model.module.save_pretrained("notes-model")
        tok.save_pretrained("notes-model")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n,), nprocs=n)
