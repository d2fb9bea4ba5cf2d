"""Plain PyTorch fine-tune of Llama-3.2-1B on recipe chats. One GPU, bf16, full parameters."""
import json
import math
import random
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BASE = "meta-llama/Llama-3.2-1B-Instruct"
DATA = Path("data")
OUT = Path("out/recipes-1b")
MAX_LEN = 1024
BATCH = 4
ACCUM = 4
EPOCHS = 3
LR = 1e-5
DEVICE = "cuda"


class Chats(Dataset):
    def __init__(self, path, tokenizer):
        self.rows = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                chat = json.loads(line)["messages"]
                prompt = tokenizer.apply_chat_template(chat[:-1], tokenize=False, add_generation_prompt=True)
                full = tokenizer.apply_chat_template(chat, tokenize=False)
                n = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
                ids = tokenizer(full, add_special_tokens=False)["input_ids"][:MAX_LEN]
                if n < len(ids):
                    self.rows.append((ids, [-100] * n + ids[n:]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad_id):
    width = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), width), pad_id)
    mask = torch.zeros((len(batch), width), dtype=torch.long)
    labels = torch.full((len(batch), width), -100)
    for i, (x, y) in enumerate(batch):
        ids[i, : len(x)] = torch.tensor(x)
        mask[i, : len(x)] = 1
        labels[i, : len(y)] = torch.tensor(y)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def validate(model, loader):
    model.eval()
    total = 0.0
    for batch in loader:
        batch = {k: v.to(DEVICE) for k, v in batch.items()}
        out = model(**batch)
        total += out.loss
    model.train()
    return total / len(loader)


def main():
    random.seed(5)
    torch.manual_seed(5)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    pad_id = tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>")
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16).to(DEVICE)
    model.config.use_cache = False
    model.gradient_checkpointing_enable()

    def loader(name, shuffle):
        return DataLoader(
            Chats(DATA / name, tokenizer), batch_size=BATCH, shuffle=shuffle, collate_fn=lambda b: collate(b, pad_id)
        )

    train_dl, val_dl = loader("train.jsonl", True), loader("val.jsonl", False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    steps = math.ceil(len(train_dl) / ACCUM) * EPOCHS
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * steps), steps)

    model.train()
    step = 0
    for epoch in range(EPOCHS):
        running = 0.0
        for i, batch in enumerate(train_dl, 1):
            batch = {k: v.to(DEVICE) for k, v in batch.items()}
            loss = model(**batch).loss
            (loss / ACCUM).backward()
            running += loss.item()
            if i % ACCUM == 0 or i == len(train_dl):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
                if step % 20 == 0:
                    gb = torch.cuda.memory_allocated() / 2**30
                    print(f"epoch {epoch} step {step}/{steps} loss {running / i:.4f} mem {gb:.1f} GiB", flush=True)
        val = validate(model, val_dl)
        print(f"epoch {epoch} val_loss {val:.4f} ppl {math.exp(val):.2f}", flush=True)
        model.save_pretrained(OUT / f"epoch-{epoch}")
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
