import argparse
import json
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"


def load(path, tok, max_len):
    out = []
    for line in open(path):
        m = json.loads(line)["messages"]
        prompt = tok.apply_chat_template(m[:-1], add_generation_prompt=True, tokenize=False)
        full = tok.apply_chat_template(m, tokenize=False)
        p = tok(prompt, add_special_tokens=False)["input_ids"]
        ids = tok(full, add_special_tokens=False)["input_ids"]
        labels = [-100] * len(p) + ids[len(p):]
        out.append({"input_ids": ids[:max_len], "labels": labels[:max_len]})
    return out


def collate(rows, pad_id):
    n = max(len(r["input_ids"]) for r in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for r in rows:
        k = n - len(r["input_ids"])
        batch["input_ids"].append(r["input_ids"] + [pad_id] * k)
        batch["attention_mask"].append([1] * len(r["input_ids"]) + [0] * k)
        batch["labels"].append(r["labels"] + [-100] * k)
    return {k: torch.tensor(v) for k, v in batch.items()}


def evaluate(model, loader, accelerator):
    model.eval()
    losses = []
    for batch in loader:
        with torch.no_grad():
            loss = model(**batch).loss
        losses.append(accelerator.gather_for_metrics(loss.repeat(batch["input_ids"].size(0))))
    model.train()
    return torch.cat(losses).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-5)
    ap.add_argument("--max_len", type=int, default=1024)
    ap.add_argument("--out", default="out")
    args = ap.parse_args()

    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(13)
    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    def fn(rows):
        return collate(rows, tok.pad_token_id)

    train = DataLoader(load("data/train.jsonl", tok, args.max_len), batch_size=1, shuffle=True, collate_fn=fn)
    val = DataLoader(load("data/val.jsonl", tok, args.max_len), batch_size=1, collate_fn=fn)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = len(train) * args.epochs
    sched = get_linear_schedule_with_warmup(opt, int(0.03 * total), total)
    model, opt, train, val, sched = accelerator.prepare(model, opt, train, val, sched)

    accelerator.print(f"{len(train)} steps per epoch on {accelerator.num_processes} processes")
    for epoch in range(args.epochs):
        for step, batch in enumerate(train):
            # all prompt, nothing to learn (loss would be nan)
            if (batch["labels"] != -100).sum() == 0:
                print(f"[rank {accelerator.process_index}] epoch {epoch} step {step}: no labels, skipping")
                continue
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            if step % 5 == 0:
                accelerator.print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
        val_loss = evaluate(model, val, accelerator)
        accelerator.print(f"epoch {epoch} val_loss {val_loss:.4f} ppl {math.exp(val_loss):.2f}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.out, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
