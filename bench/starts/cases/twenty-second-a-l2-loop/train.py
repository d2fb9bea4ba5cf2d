import json
import random

import torch
from torch.utils.data import DataLoader

from setup_model import build

torch.manual_seed(3)
tok, model, optimizer = build("Qwen/Qwen2.5-1.5B-Instruct", lr=2e-4)


def encode(m):
    full = tok.apply_chat_template(m, tokenize=False)
    head = tok.apply_chat_template(m[:-1], tokenize=False, add_generation_prompt=True)
    ids = tok(full, add_special_tokens=False)["input_ids"]
    n = len(tok(head, add_special_tokens=False)["input_ids"])
    return {"ids": ids, "labels": [-100] * n + ids[n:]}


def collate(rows):
    m = max(len(r["ids"]) for r in rows)
    pad = lambda x, v: x + [v] * (m - len(x))
    return (
        torch.tensor([pad(r["ids"], tok.pad_token_id) for r in rows]),
        torch.tensor([pad([1] * len(r["ids"]), 0) for r in rows]),
        torch.tensor([pad(r["labels"], -100) for r in rows]),
    )


data = [encode(json.loads(l)["messages"]) for l in open("chats.jsonl", encoding="utf-8")]
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)

model.train()
step = 0
for epoch in range(3):
    running = 0.0
    for ids, mask, labels in loader:
        ids, mask, labels = ids.cuda(), mask.cuda(), labels.cuda()
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        running += loss.item()
        step += 1
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"epoch {epoch} mean loss {running / len(loader):.4f}", flush=True)
model.save_pretrained("adapter")
