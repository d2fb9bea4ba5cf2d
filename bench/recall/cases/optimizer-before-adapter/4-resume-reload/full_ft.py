"""Full fine-tuning of a small model, restartable (the partition kills jobs after 4 h)."""
import argparse
import glob
import os

import torch
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


def latest(folder):
    found = sorted(glob.glob(os.path.join(folder, "epoch-*")), key=lambda p: int(p.rsplit("-", 1)[1]))
    return found[-1] if found else None


def save(folder, epoch, model, tok, opt):
    path = os.path.join(folder, f"epoch-{epoch}")
    model.save_pretrained(path)
    tok.save_pretrained(path)
    torch.save({"optimizer": opt.state_dict(), "epoch": epoch}, os.path.join(path, "state.pt"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    p.add_argument("--data", default="data/tokenized")
    p.add_argument("--out", default="out/full")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-5)
    args = p.parse_args()

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)

    start = 0
    last = latest(args.out)
    if last is not None:
        model = AutoModelForCausalLM.from_pretrained(last, dtype=torch.float32).cuda()
        state = torch.load(os.path.join(last, "state.pt"), map_location="cuda")
        opt.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
        print("resumed from", last)

    loader = DataLoader(
        load_from_disk(args.data),
        batch_size=8,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )
    for epoch in range(start, args.epochs):
        model.train()
        for i, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            if i % 50 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")
        save(args.out, epoch, model, tok, opt)


if __name__ == "__main__":
    main()
