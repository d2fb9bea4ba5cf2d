"""LoRA SFT of Llama-3.1-8B, plain PyTorch + DDP.

    torchrun --standalone --nproc_per_node 8 train_ddp.py --data data/chats.jsonl
"""
import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


class Chats(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = []
        for line in open(path, encoding="utf-8"):
            m = json.loads(line)["messages"]
            prompt = tok.apply_chat_template(m[:-1], tokenize=False, add_generation_prompt=True)
            full = prompt + m[-1]["content"] + "<|eot_id|>"
            p = tok(prompt, add_special_tokens=False).input_ids
            f = tok(full, add_special_tokens=False).input_ids
            if len(f) > max_len:
                continue
            self.rows.append((f, [-100] * len(p) + f[len(p):]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad_id):
    n = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), n), pad_id)
    lab = torch.full((len(batch), n), -100)
    att = torch.zeros(len(batch), n, dtype=torch.long)
    for k, (i, l) in enumerate(batch):
        ids[k, : len(i)] = torch.tensor(i)
        lab[k, : len(l)] = torch.tensor(l)
        att[k, : len(i)] = 1
    return {"input_ids": ids, "labels": lab, "attention_mask": att}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", default="adapter")
    ap.add_argument("--bs", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--max-len", type=int, default=2048)
    a = ap.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)
    device = torch.device("cuda")

    tok = AutoTokenizer.from_pretrained(MODEL)
    pad_id = tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model.to(device)
    model = DDP(model)

    ds = Chats(a.data, tok, a.max_len)
    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    dl = DataLoader(ds, batch_size=a.bs, sampler=sampler, collate_fn=lambda b: collate(b, pad_id), drop_last=True)

    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=a.lr, weight_decay=0.0)
    total = a.epochs * len(dl)
    sched = get_cosine_schedule_with_warmup(opt, math.ceil(0.03 * total), total)

    step, t0 = 0, time.time()
    model.train()
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        for batch in dl:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % 10 == 0:
                print(f"step {step}/{total} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e} {time.time() - t0:.0f}s", flush=True)

    dist.barrier()
    if rank == 0:
        model.module.save_pretrained(a.out)
        tok.save_pretrained(a.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
