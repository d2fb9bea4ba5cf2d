import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from reader import JsonShards

NAME = os.environ.get("BASE", "HuggingFaceTB/SmolLM2-360M")
STEPS = int(os.environ.get("STEPS", "5000"))


def collate_with(pad):
    def fn(rows):
        width = max(map(len, rows))
        ids = torch.tensor([r + [pad] * (width - len(r)) for r in rows])
        mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    return fn


def batches(loader, data):
    epoch = 0
    while True:
        data.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    dist.init_process_group(backend="nccl")
    dev = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(dev)
    tok = AutoTokenizer.from_pretrained(NAME)
    net = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32).to(dev)
    net = DistributedDataParallel(net, device_ids=[dev.index])
    data = JsonShards("/data/crawl/*.jsonl.gz", tok)
    pad = tok.pad_token_id if tok.pad_token_id is not None else tok.eos_token_id
    loader = DataLoader(data, batch_size=8, num_workers=4, collate_fn=collate_with(pad))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, weight_decay=0.1)
    net.train()
    for step, batch in zip(range(STEPS), batches(loader, data)):
        batch = {k: v.to(dev) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if dist.get_rank() == 0 and step % 100 == 0:
            print(step, round(loss.item(), 4), flush=True)
    if dist.get_rank() == 0:
        net.module.save_pretrained("out/crawl")
        tok.save_pretrained("out/crawl")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
