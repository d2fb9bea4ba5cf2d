import argparse

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed


def collate(rows, tok):
    enc = tok(
        [r["poem"] + tok.eos_token for r in rows],
        padding=True,
        truncation=True,
        max_length=512,
        return_tensors="pt",
    )
    enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
    return enc


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen3-0.6B-Base")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--out", default="runs/poems")
    args = p.parse_args()
    set_seed(9)

    tok = AutoTokenizer.from_pretrained(args.model, padding_side="right")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to("cuda")
    ds = load_dataset("json", data_files="data/poems.jsonl", split="train")
    loader = DataLoader(ds, batch_size=16, shuffle=True, collate_fn=lambda r: collate(r, tok))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = args.epochs * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)

    model.train()
    for epoch in range(args.epochs):
        for i, batch in enumerate(loader):
            batch = batch.to("cuda")
            inputs, labels = batch["input_ids"][:, :-1], batch["labels"][:, 1:]
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model(
                    input_ids=inputs,
                    attention_mask=batch["attention_mask"][:, :-1],
                    labels=labels,
                )
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            if i % 20 == 0:
                print(f"epoch {epoch} step {i} loss {out.loss.item():.4f}")
    model.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
