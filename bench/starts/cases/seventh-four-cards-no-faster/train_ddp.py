"""Fine-tune SmolLM2-360M on recipe steps with plain PyTorch DDP.

torchrun --standalone --nproc_per_node=4 train_ddp.py | tee train.log
"""
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "HuggingFaceTB/SmolLM2-360M-Instruct"
DATA = Path("data/recipes.jsonl")
OUT = Path("out/recipes-360m")
BATCH = 8
EPOCHS = 3
LR = 3e-5
MAX_LEN = 1024


class Recipes(Dataset):
    def __init__(self, tokenizer):
        self.items = []
        for line in DATA.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            prompt = tokenizer.apply_chat_template(
                [{"role": "user", "content": row["question"]}],
                tokenize=False, add_generation_prompt=True,
            )
            prompt_ids = tokenizer(prompt, add_special_tokens=False).input_ids
            answer_ids = tokenizer(row["answer"] + "<|im_end|>\n", add_special_tokens=False).input_ids
            ids = (prompt_ids + answer_ids)[:MAX_LEN]
            labels = ([-100] * len(prompt_ids) + answer_ids)[:MAX_LEN]
            self.items.append({"ids": ids, "labels": labels})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, items):
        n = max(len(x["ids"]) for x in items)
        out = {"input_ids": [], "labels": [], "attention_mask": []}
        for x in items:
            gap = n - len(x["ids"])
            out["input_ids"].append(x["ids"] + [self.pad_id] * gap)
            out["labels"].append(x["labels"] + [-100] * gap)
            out["attention_mask"].append([1] * len(x["ids"]) + [0] * gap)
        return {k: torch.tensor(v) for k, v in out.items()}


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    world = dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(1234)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = "<|endoftext|>"
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).to(device)
    model.config.use_cache = False
    model = DDP(model, device_ids=[local_rank])

    dataset = Recipes(tokenizer)
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        num_workers=4,
        pin_memory=True,
        drop_last=True,
        collate_fn=Collate(tokenizer.pad_token_id),
    )
    steps = len(loader) * EPOCHS
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    scheduler = get_cosine_schedule_with_warmup(optimizer, math.ceil(0.03 * steps), steps)
    if rank == 0:
        print(f"world size {world}, {len(dataset)} rows, {len(loader)} steps per epoch, {steps} steps", flush=True)

    step = 0
    for epoch in range(EPOCHS):
        start = time.time()
        model.train()
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
            if rank == 0 and step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.3e}", flush=True)
        if rank == 0:
            print(f"epoch {epoch} took {time.time() - start:.0f} s", flush=True)
        dist.barrier()

    if rank == 0:
        model.module.config.use_cache = True
        model.module.save_pretrained(OUT)
        tokenizer.save_pretrained(OUT)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
