import argparse
import math

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def make_loader(path, tok, batch_size):
    ds = load_dataset("json", data_files=path, split="train")

    def collate(rows):
        enc = tok(
            [r["text"] + tok.eos_token for r in rows],
            padding=True, truncation=True, max_length=2048, return_tensors="pt", add_special_tokens=False,
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    return DataLoader(ds, batch_size=batch_size, shuffle=True, collate_fn=collate, num_workers=8)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-1.5B")
    ap.add_argument("--data", default="papers.jsonl")
    ap.add_argument("--accum", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--out", default="out/papers")
    a = ap.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tok = AutoTokenizer.from_pretrained(a.base)
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.float32).to(device)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    loader = make_loader(a.data, tok, 4)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1, fused=True)
    updates = math.ceil(len(loader) / a.accum) * a.epochs
    sched = get_cosine_schedule_with_warmup(opt, updates // 20, updates)
    model.train()
    for epoch in range(a.epochs):
        for i, batch in enumerate(loader):
            batch = batch.to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss / a.accum
            loss.backward()
            if (i + 1) % a.accum == 0 or i + 1 == len(loader):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
            if i % 40 == 0:
                print(epoch, i, loss.item() * a.accum, flush=True)
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
