import argparse
import json

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer


class Chats(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = []
        for line in open(path):
            msgs = json.loads(line)["messages"]
            prompt = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
            full = tok.apply_chat_template(msgs, tokenize=False)
            p = tok(prompt, add_special_tokens=False).input_ids
            f = tok(full, add_special_tokens=False).input_ids[:max_len]
            self.rows.append((f, [-100] * min(len(p), len(f)) + f[len(p):]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad):
    n = max(len(x) for x, _ in batch)
    return {
        "input_ids": torch.tensor([x + [pad] * (n - len(x)) for x, _ in batch]),
        "labels": torch.tensor([y + [-100] * (n - len(y)) for _, y in batch]),
        "attention_mask": torch.tensor([[1] * len(x) + [0] * (n - len(x)) for x, _ in batch]),
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--data", default="/data/chats/train.jsonl")
    ap.add_argument("--out", default="/data/out/qwen7b-lora")
    ap.add_argument("--max_len", type=int, default=2048)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--accum", type=int, default=8)
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda")

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.to(device)
    model = DDP(model)

    ds = Chats(args.data, tok, args.max_len)
    sampler = DistributedSampler(ds, shuffle=True, seed=17)
    loader = DataLoader(ds, batch_size=1, sampler=sampler, collate_fn=lambda b: collate(b, tok.pad_token_id), drop_last=True)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=args.lr)
    total = args.epochs * (len(loader) // args.accum)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20) * max(0.0, 1 - s / total))

    model.train()
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = model(**batch).loss
            (loss / args.accum).backward()
            if (i + 1) % args.accum == 0:
                torch.nn.utils.clip_grad_norm_(params, 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                step += 1
                if rank == 0 and step % 10 == 0:
                    print(f"[{step}/{total}] loss {loss.item():.4f}", flush=True)

    if rank == 0:
        model.module.save_pretrained(args.out)
        tok.save_pretrained(args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
