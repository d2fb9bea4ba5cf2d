import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import ChatRows, PadRight

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
EPOCHS = 2


def main():
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(40)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).to(rank)
    model.config.use_cache = False
    model.activation_checkpointing_enable({"use_reentrant": True})
    ddp = DistributedDataParallel(model, device_ids=[rank], find_unused_parameters=True)
    rows = ChatRows("train.jsonl", tokenizer)
    sampler = DistributedSampler(rows, shuffle=True, seed=40)
    loader = DataLoader(rows, 4, sampler=sampler, collate_fn=PadRight(tokenizer.pad_token_id))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-5, weight_decay=0.01)
    total = EPOCHS * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)
    ddp.train()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = ddp(**{k: v.to(rank) for k, v in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        model.save_pretrained("ddp-out")
        tokenizer.save_pretrained("ddp-out")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
