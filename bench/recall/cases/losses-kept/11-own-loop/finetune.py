"""Small own loop: full fine-tuning of SmolLM2 on recipe texts."""
import argparse

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed


def collate(rows, tok, max_length):
    texts = [r["text"] + tok.eos_token for r in rows]
    enc = tok(texts, truncation=True, max_length=max_length, padding=True, return_tensors="pt")
    labels = enc["input_ids"].clone()
    labels[enc["attention_mask"] == 0] = -100
    enc["labels"] = labels
    return enc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="HuggingFaceTB/SmolLM2-360M")
    ap.add_argument("--data", default="recipes.jsonl")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--out", default="out/recipes")
    args = ap.parse_args()

    set_seed(3)
    device = torch.device("cuda")
    tok = AutoTokenizer.from_pretrained(args.model)
    tok.pad_token = tok.eos_token
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(device)

    rows = load_dataset("json", data_files=args.data, split="train")
    loader = DataLoader(rows, batch_size=args.batch_size, shuffle=True,
                        collate_fn=lambda b: collate(b, tok, 1024))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = len(loader) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)

    history = []
    model.train()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            history.append(loss)
            if step % 50 == 0:
                recent = sum(history[-50:]) / len(history[-50:])
                print(f"epoch {epoch} step {step} loss {recent:.4f}")

    print("mean loss", torch.stack(history).mean().item())
    model.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
