"""Full fine-tune of Qwen2.5-1.5B on the recipe corpus with plain DDP.

    torchrun --standalone --nproc_per_node 8 finetune.py --data recipes.jsonl --epochs 3
"""
import argparse
import json
import math
import os
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class Recipes(Dataset):
    def __init__(self, path, tokenizer, max_len):
        self.examples = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                row = json.loads(line)
                prompt = tokenizer.apply_chat_template(
                    [{"role": "user", "content": "Write a recipe with: " + ", ".join(row["ingredients"])}],
                    tokenize=False,
                    add_generation_prompt=True,
                )
                p = tokenizer(prompt, add_special_tokens=False).input_ids
                a = tokenizer(row["recipe"] + "<|im_end|>\n", add_special_tokens=False).input_ids
                if len(p) + len(a) <= max_len:
                    self.examples.append((p + a, [-100] * len(p) + a))

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        ids, labels = self.examples[i]
        return torch.tensor(ids), torch.tensor(labels)


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, batch):
        ids = pad_sequence([b[0] for b in batch], batch_first=True, padding_value=self.pad_id)
        labels = pad_sequence([b[1] for b in batch], batch_first=True, padding_value=-100)
        mask = pad_sequence([torch.ones_like(b[0]) for b in batch], batch_first=True, padding_value=0)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def cosine(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="recipes.jsonl")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--max-len", type=int, default=1024)
    parser.add_argument("--out", default="out/recipes-1.5b")
    cli = parser.parse_args()

    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    world = dist.get_world_size()
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    seed_everything(42)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).to(device)
    model.train()
    model = DDP(model, device_ids=[local_rank])

    data = Recipes(cli.data, tokenizer, cli.max_len)
    loader = DataLoader(
        data,
        batch_size=cli.batch_size,
        shuffle=True,
        collate_fn=Collate(tokenizer.pad_token_id),
        num_workers=4,
        pin_memory=True,
        drop_last=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=cli.lr, weight_decay=0.01, betas=(0.9, 0.95))
    total = len(loader) * cli.epochs
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: cosine(s, 100, total))

    step, start = 0, time.time()
    for epoch in range(cli.epochs):
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0 and rank == 0:
                rate = step * cli.batch_size * world / (time.time() - start)
                print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} {rate:.1f} rows/s", flush=True)

    dist.barrier()
    if rank == 0:
        model.module.save_pretrained(cli.out)
        tokenizer.save_pretrained(cli.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
