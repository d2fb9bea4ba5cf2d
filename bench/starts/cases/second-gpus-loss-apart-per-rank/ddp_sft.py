# torchrun --nproc-per-node 4 ddp_sft.py
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
MAX_LEN = 1024
ACCUM = 4
EPOCHS = 3


class Chats(Dataset):
    def __init__(self, path, tok):
        self.items = []
        for line in open(path):
            messages = json.loads(line)["messages"]
            prompt = tok.apply_chat_template(
                messages[:-1], tokenize=False, add_generation_prompt=True
            )
            full = tok.apply_chat_template(messages, tokenize=False)
            p = tok(prompt, add_special_tokens=False)["input_ids"]
            f = tok(full, add_special_tokens=False)["input_ids"][:MAX_LEN]
            self.items.append((f, ([-100] * len(p) + f[len(p) :])[:MAX_LEN]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch, pad):
    width = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), width), pad)
    labels = torch.full((len(batch), width), -100)
    mask = torch.zeros((len(batch), width), dtype=torch.long)
    for k, (row, lab) in enumerate(batch):
        ids[k, : len(row)] = torch.tensor(row)
        labels[k, : len(lab)] = torch.tensor(lab)
        mask[k, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1234)

    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16).cuda()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    model = DDP(model, device_ids=[local])

    data = Chats("data/train.jsonl", tok)
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(
        data, batch_size=4, sampler=sampler, collate_fn=lambda b: collate(b, tok.pad_token_id)
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1)
    total = EPOCHS * len(loader) // ACCUM
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=1e-5, total_steps=total + 1, pct_start=0.05
    )

    model.train()
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            # DDP hides the HF output class, so take the model itself
            out = model.module(**batch)
            (out.loss / ACCUM).backward()
            if (i + 1) % ACCUM == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                step += 1
                if step % 10 == 0:
                    wsum = sum(p.double().sum().item() for p in model.parameters())
                    print(
                        f"[rank {rank}] epoch {epoch} step {step}/{total} loss {out.loss.item():.4f} wsum {wsum:.6f}",
                        flush=True,
                    )
    dist.barrier()
    if rank == 0:
        model.module.save_pretrained("out/final")
        tok.save_pretrained("out/final")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
