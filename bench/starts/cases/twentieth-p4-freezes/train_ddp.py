import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from datasets import load_from_disk
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_cosine_schedule_with_warmup


@dataclass
class Config:
    model: str = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
    data: str = "/mnt/data/longdocs-tokenized"
    out: str = "/mnt/out/smol-longdocs"
    lr: float = 2e-5
    batch_size: int = 4
    accumulate: int = 2
    epochs: int = 3
    max_norm: float = 1.0


cfg = Config()
rank, local, world = (int(os.environ[k]) for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("train")


class Engine:
    def __init__(self, model, opt, sched):
        self.model, self.opt, self.sched = model, opt, sched
        self.micro, self.step = 0, 0

    def micro_step(self, batch):
        last = (self.micro + 1) % cfg.accumulate == 0
        with nullcontext() if last else self.model.no_sync():
            loss = self.model(**batch).loss / cfg.accumulate
            loss.backward()
        self.micro += 1
        if last:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), cfg.max_norm)
            self.opt.step()
            self.sched.step()
            self.opt.zero_grad(set_to_none=True)
            self.step += 1
        return loss.item() * cfg.accumulate


def epoch_loop(engine, loader, total):
    for batch in loader:
        batch = {k: v.to(local, non_blocking=True) for k, v in batch.items()}
        try:
            loss = engine.micro_step(batch)
        except torch.cuda.OutOfMemoryError:
            log.warning("micro step %d: out of memory with batch of shape %s, skipping it",
                        engine.micro, tuple(batch["input_ids"].shape))
            engine.opt.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            continue
        if rank == 0 and engine.micro % (20 * cfg.accumulate) == 0:
            log.info("step %d/%d loss %.4f lr %.2e mem %.1f GiB", engine.step, total, loss,
                     engine.sched.get_last_lr()[0], torch.cuda.max_memory_allocated() / 2**30)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(local)
    torch.manual_seed(1)
    tok = AutoTokenizer.from_pretrained(cfg.model)
    rows = load_from_disk(cfg.data)
    sampler = DistributedSampler(rows, shuffle=True, drop_last=True)
    collate = DataCollatorForSeq2Seq(tok, padding="longest", label_pad_token_id=-100)
    loader = DataLoader(rows, batch_size=cfg.batch_size, sampler=sampler, collate_fn=collate,
                        num_workers=4, pin_memory=True, drop_last=True)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.float32)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = DDP(model.to(local), device_ids=[local])
    model.forward = torch.autocast("cuda", dtype=torch.bfloat16)(model.forward)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    total = cfg.epochs * len(loader) // cfg.accumulate
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
    engine = Engine(model, opt, sched)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        epoch_loop(engine, loader, total)
        if rank == 0:
            model.module.save_pretrained(f"{cfg.out}/epoch-{epoch}")
            tok.save_pretrained(f"{cfg.out}/epoch-{epoch}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
