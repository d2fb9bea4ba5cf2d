import json
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class Cfg:
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    data: str = "data/notes.jsonl"
    out: str = "notes-lora"
    device: str = "cuda"
    epochs: int = 2
    batch_size: int = 2
    lr: float = 1e-4
    max_len: int = 1024
    log_every: int = 10


def load_model(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    return model.to(cfg.device)


def encode(tok, row, max_len):
    m = row["messages"]
    p = tok(tok.apply_chat_template(m[:-1], add_generation_prompt=True, tokenize=False), add_special_tokens=False).input_ids
    t = tok(tok.apply_chat_template(m, tokenize=False), add_special_tokens=False).input_ids
    return t[:max_len], ([-100] * len(p) + t[len(p):])[:max_len]


def main():
    cfg = Cfg()
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)
    tok = AutoTokenizer.from_pretrained(cfg.model)
    rows = [encode(tok, json.loads(x), cfg.max_len) for x in open(cfg.data)]

    def collate(b):
        n = max(len(t) for t, _ in b)
        ids = torch.full((len(b), n), tok.pad_token_id)
        lab = torch.full((len(b), n), -100)
        att = torch.zeros((len(b), n), dtype=torch.long)
        for i, (t, y) in enumerate(b):
            ids[i, : len(t)], lab[i, : len(y)], att[i, : len(t)] = torch.tensor(t), torch.tensor(y), 1
        return {"input_ids": ids, "labels": lab, "attention_mask": att}

    sampler = DistributedSampler(rows, world, rank, shuffle=True, seed=1234)
    dl = DataLoader(rows, cfg.batch_size, sampler=sampler, collate_fn=collate, drop_last=True)
    model = DDP(load_model(cfg))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=cfg.lr)

    step = 0
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for batch in dl:
            batch = {k: v.to(cfg.device) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        model.module.save_pretrained(cfg.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
