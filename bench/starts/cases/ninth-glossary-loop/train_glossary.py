import json
import math
import os
import time
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class Config:
    model: str = "HuggingFaceTB/SmolLM2-360M"
    data: str = "glossary.jsonl"
    out: str = "ckpt/glossary"
    batch_size: int = 16
    epochs: int = 4
    lr: float = 2e-5
    warmup: int = 10
    max_len: int = 384
    valid_share: float = 0.05
    seed: int = 1337


class GlossaryDataset(Dataset):
    """One row per term: question, answer, end of text."""

    def __init__(self, rows, tokenizer, max_len):
        self.samples = []
        for row in rows:
            text = f"Question: {row['question']}\nAnswer: {row['answer']}{tokenizer.eos_token}"
            ids = tokenizer(text, truncation=True, max_length=max_len)["input_ids"]
            self.samples.append(torch.tensor(ids))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        ids = self.samples[i]
        x = ids[:-1]  # what the model sees
        y = ids[1:]  # the next token at each position
        return x, y


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, batch):
        xs, ys = zip(*batch)
        lengths = torch.tensor([len(x) for x in xs])
        x = pad_sequence(xs, batch_first=True, padding_value=self.pad_id)
        y = pad_sequence(ys, batch_first=True, padding_value=-100)
        mask = (torch.arange(x.size(1))[None, :] < lengths[:, None]).long()
        return x, y, mask


def lr_at(step, total, cfg):
    if step < cfg.warmup:
        return cfg.lr * (step + 1) / cfg.warmup
    t = (step - cfg.warmup) / max(1, total - cfg.warmup)
    return cfg.lr * 0.5 * (1 + math.cos(math.pi * t))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    losses = []
    for x, y, mask in loader:
        x, y, mask = x.to(device), y.to(device), mask.to(device)
        losses.append(model(input_ids=x, attention_mask=mask, labels=y).loss.item())
    model.train()
    return sum(losses) / len(losses)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, torch_dtype=torch.float32).to(device)
    model.train()

    with open(cfg.data, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    cut = int(len(rows) * cfg.valid_share)
    train_set = GlossaryDataset(rows[cut:], tokenizer, cfg.max_len)
    valid_set = GlossaryDataset(rows[:cut], tokenizer, cfg.max_len)
    collate = Collate(tokenizer.eos_token_id)
    train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid_set, cfg.batch_size, collate_fn=collate)

    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1)
    total = cfg.epochs * len(train_loader)
    step, t0 = 0, time.time()
    for epoch in range(cfg.epochs):
        for x, y, mask in train_loader:
            for group in optimizer.param_groups:
                group["lr"] = lr_at(step, total, cfg)
            x, y, mask = x.to(device), y.to(device), mask.to(device)
            loss = model(input_ids=x, attention_mask=mask, labels=y).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 5 == 0:
                print(f"step {step:4d}/{total} | loss {loss.item():.4f} | lr {optimizer.param_groups[0]['lr']:.2e} | {time.time() - t0:.1f}s")
        print(f"epoch {epoch}: valid loss {evaluate(model, valid_loader, device):.4f}")

    os.makedirs(cfg.out, exist_ok=True)
    model.save_pretrained(cfg.out)
    tokenizer.save_pretrained(cfg.out)


if __name__ == "__main__":
    main()
