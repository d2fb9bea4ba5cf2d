import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-0.5B"


@torch.no_grad()
def sample(ddp, tok, start, device):
    net = ddp.module
    net.eval()
    enc = tok(start, return_tensors="pt").to(device)
    out = net.generate(**enc, max_new_tokens=60, do_sample=True, temperature=0.8, top_p=0.95)
    net.train()
    return tok.decode(out[0], skip_special_tokens=True)


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.padding_side = "right"
    net = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).to(local)
    ddp = DDP(net, device_ids=[local])
    ds = load_dataset("json", data_files="limericks.jsonl", split="train")

    def collate(rows):
        enc = tok(
            [r["text"] + tok.eos_token for r in rows],
            padding=True, truncation=True, max_length=256, return_tensors="pt", add_special_tokens=False,
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(ds, batch_size=16, sampler=sampler, collate_fn=collate)
    opt = torch.optim.AdamW(ddp.parameters(), lr=1e-5, weight_decay=0.01)
    ddp.train()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = batch.to(local)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = ddp(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
        if rank == 0:
            print(epoch, loss.item(), sample(ddp, tok, "There once was a", local), flush=True)
        dist.barrier()
    if rank == 0:
        ddp.module.save_pretrained("out/limericks")
        tok.save_pretrained("out/limericks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
