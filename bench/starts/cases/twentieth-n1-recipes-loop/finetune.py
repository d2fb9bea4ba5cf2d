import argparse
import json
import math
import random
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

IGNORE = -100


def rows(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class Recipes(torch.utils.data.Dataset):
    def __init__(self, path, tok, max_len):
        self.items = []
        for r in rows(path):
            prompt = tok.apply_chat_template(
                [{"role": "user", "content": r["request"]}],
                tokenize=False,
                add_generation_prompt=True,
            )
            p = tok(prompt, add_special_tokens=False)["input_ids"]
            a = tok(r["recipe"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
            ids = (p + a)[:max_len]
            labels = ([IGNORE] * len(p) + a)[:max_len]
            self.items.append((ids, labels))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch, pad):
    n = max(len(i) for i, _ in batch)
    ids = torch.full((len(batch), n), pad)
    labels = torch.full((len(batch), n), IGNORE)
    mask = torch.zeros((len(batch), n), dtype=torch.long)
    for k, (i, l) in enumerate(batch):
        ids[k, : len(i)] = torch.tensor(i)
        labels[k, : len(l)] = torch.tensor(l)
        mask[k, : len(i)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--data", default="recipes.jsonl")
    ap.add_argument("--out", default="ckpt")
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--max-len", type=int, default=768)
    args = ap.parse_args()

    torch.manual_seed(0)
    random.seed(0)
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32).cuda()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model = torch.compile(model)

    data = Recipes(args.data, tok, args.max_len)
    loader = DataLoader(
        data, batch_size=args.batch, shuffle=True, drop_last=True,
        collate_fn=lambda b: collate(b, tok.pad_token_id),
    )
    steps = len(loader) * args.epochs
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = get_cosine_schedule_with_warmup(opt, math.ceil(0.05 * steps), steps)

    step = 0
    model.train()
    for epoch in range(args.epochs):
        for batch in loader:
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step}/{steps} loss {loss.item():.4f} grad_norm {norm.item():.3f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
        out = Path(args.out)
        out.mkdir(exist_ok=True)
        torch.save(model.state_dict(), out / f"epoch{epoch}.pt")
        print(f"saved {out / f'epoch{epoch}.pt'}", flush=True)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
