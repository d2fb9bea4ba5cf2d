import argparse
import json

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-14B-Instruct"
MAX_LEN = 4096
ACCUM = 8


def encode(tok, messages):
    full = tok.apply_chat_template(messages, tokenize=False)
    prompt = tok.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    ids = tok(full, add_special_tokens=False).input_ids
    n = len(tok(prompt, add_special_tokens=False).input_ids)
    return {"input_ids": ids, "labels": [-100] * n + ids[n:]}


def collate(pad_id):
    def fn(batch):
        width = max(len(b["input_ids"]) for b in batch)
        out = {"input_ids": [], "attention_mask": [], "labels": []}
        for b in batch:
            k = width - len(b["input_ids"])
            out["input_ids"].append(b["input_ids"] + [pad_id] * k)
            out["attention_mask"].append([1] * len(b["input_ids"]) + [0] * k)
            out["labels"].append(b["labels"] + [-100] * k)
        return {k: torch.tensor(v) for k, v in out.items()}
    return fn


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-5)
    args = ap.parse_args()

    accelerator = Accelerator(gradient_accumulation_steps=ACCUM)
    set_seed(11)
    tok = AutoTokenizer.from_pretrained(MODEL)
    rows = [encode(tok, json.loads(line)["messages"]) for line in open(args.data)]
    rows = [r for r in rows if len(r["input_ids"]) <= MAX_LEN]
    accelerator.print(f"{len(rows)} rows")
    loader = DataLoader(rows, batch_size=1, shuffle=True, collate_fn=collate(tok.pad_token_id))

    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.config.use_cache = False
    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    total = args.epochs * (len(loader) // ACCUM)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    optimizer, loader, scheduler = accelerator.prepare(optimizer, loader, scheduler)

    model.train()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if step % 80 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        accelerator.save_state(f"{args.out}/epoch-{epoch}")


if __name__ == "__main__":
    main()
