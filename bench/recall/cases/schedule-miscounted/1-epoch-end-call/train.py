import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import build_loader


def one_epoch(model, loader, optimizer, device):
    model.train()
    total = 0.0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.item()
    return total / len(loader)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    p.add_argument("--train", default="train.jsonl")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-5)
    a = p.parse_args()
    torch.manual_seed(2)
    device = torch.device("cuda")
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).to(device)
    loader = build_loader(a.train, tokenizer, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01)
    steps = len(loader) * a.epochs
    schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=steps // 20, num_training_steps=steps)
    for epoch in range(a.epochs):
        mean = one_epoch(model, loader, optimizer, device)
        schedule.step()
        print(f"epoch {epoch}: loss {mean:.4f} lr {schedule.get_last_lr()[0]:.2e}")
    model.save_pretrained("out")
    tokenizer.save_pretrained("out")


if __name__ == "__main__":
    main()
