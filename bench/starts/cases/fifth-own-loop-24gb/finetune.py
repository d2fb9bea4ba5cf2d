"""Plain PyTorch fine-tune of SmolLM2-1.7B on a 3090. Usage: python finetune.py config.json"""
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import bitsandbytes as bnb
import torch
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup


@dataclass
class Config:
    model: str = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
    train: str = "data/train.jsonl"
    dev: str = "data/dev.jsonl"
    epochs: int = 3
    batch_size: int = 4
    lr: float = 1e-5
    max_length: int = 1024
    out: str = "outputs/smol-desk"

    @classmethod
    def load(cls, path):
        return cls(**json.loads(Path(path).read_text()))


class Rows(Dataset):
    def __init__(self, path, tokenizer, max_length):
        self.items = []
        for line in Path(path).read_text().splitlines():
            r = json.loads(line)
            head = tokenizer.apply_chat_template(
                [{"role": "user", "content": r["prompt"]}], tokenize=False, add_generation_prompt=True
            )
            head = tokenizer(head, add_special_tokens=False).input_ids
            tail = tokenizer(r["response"] + "<|im_end|>\n", add_special_tokens=False).input_ids
            self.items.append(((head + tail)[:max_length], ([-100] * len(head) + tail)[:max_length]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(rows, pad_id):
    width = max(len(x) for x, _ in rows)
    ids = torch.full((len(rows), width), pad_id)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, (x, y) in enumerate(rows):
        ids[i, : len(x)] = torch.tensor(x)
        labels[i, : len(y)] = torch.tensor(y)
        mask[i, : len(x)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    total = 0.0
    bar = tqdm(loader, desc="train")
    for i, batch in enumerate(bar):
        batch = {k: v.to("cuda") for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.item()
        bar.set_postfix(loss=f"{total / (i + 1):.3f}", mem=f"{torch.cuda.max_memory_allocated() / 2**30:.1f}G")
    return total / len(loader)


def validate(model, loader):
    model.eval()
    total = 0.0
    for batch in tqdm(loader, desc="dev"):
        batch = {k: v.to("cuda") for k, v in batch.items()}
        outputs = model(**batch)
        total += outputs.loss
    return (total / len(loader)).item()


def main():
    cfg = Config.load(sys.argv[1]) if len(sys.argv) > 1 else Config()
    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, torch_dtype=torch.bfloat16).to("cuda")
    model.gradient_checkpointing_enable()
    model.config.use_cache = False

    def loader(path, shuffle):
        return DataLoader(
            Rows(path, tokenizer, cfg.max_length),
            batch_size=cfg.batch_size,
            shuffle=shuffle,
            collate_fn=lambda rows: collate(rows, tokenizer.pad_token_id),
        )

    train, dev = loader(cfg.train, True), loader(cfg.dev, False)
    optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    steps = len(train) * cfg.epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.03 * steps), steps)

    best = float("inf")
    for epoch in range(cfg.epochs):
        train_loss = train_epoch(model, train, optimizer, scheduler)
        dev_loss = validate(model, dev)
        print(f"epoch {epoch}: train {train_loss:.4f} dev {dev_loss:.4f}")
        if dev_loss < best:
            best = dev_loss
            model.save_pretrained(cfg.out)
            tokenizer.save_pretrained(cfg.out)


if __name__ == "__main__":
    main()
