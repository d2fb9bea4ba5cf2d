import json
import random

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from config import Config


def encode(tokenizer, row, cfg):
    prompt = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    answer = row["messages"][-1]["content"] + "<|im_end|>\n"
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    a = tokenizer(answer, add_special_tokens=False)["input_ids"]
    ids = (p + a)[: cfg.max_length]
    labels = ([-100] * len(p) + a)[: cfg.max_length]
    return {"input_ids": ids, "labels": labels}


def make_collate(tokenizer):
    def collate(rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), width), tokenizer.pad_token_id)
        labels = torch.full((len(rows), width), -100)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for i, r in enumerate(rows):
            n = len(r["input_ids"])
            ids[i, :n] = torch.tensor(r["input_ids"])
            labels[i, :n] = torch.tensor(r["labels"])
            mask[i, :n] = 1
        return {"input_ids": ids, "labels": labels, "attention_mask": mask}

    return collate


def main():
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=getattr(torch, cfg.dtype)).cuda()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model.train()

    rows = [encode(tokenizer, json.loads(line), cfg) for line in open(cfg.data, encoding="utf-8")]
    loader = DataLoader(rows, batch_size=cfg.batch_size, shuffle=True, collate_fn=make_collate(tokenizer), drop_last=True)
    steps = len(loader) // cfg.accumulate * cfg.epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    scheduler = get_cosine_schedule_with_warmup(optimizer, cfg.warmup, steps)
    print(f"{len(rows)} rows, {steps} steps, {sum(p.numel() for p in model.parameters()):,} parameters")

    step, running = 0, 0.0
    for epoch in range(cfg.epochs):
        for i, batch in enumerate(loader, 1):
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss / cfg.accumulate
            loss.backward()
            running += loss.item()
            if i % cfg.accumulate:
                continue
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % cfg.log_every == 0:
                lr = scheduler.get_last_lr()[0]
                print(f"epoch {epoch} step {step}/{steps} loss {running / cfg.log_every:.4f} grad_norm {norm.item():.3f} lr {lr:.3e}", flush=True)
                running = 0.0
    model.save_pretrained(cfg.out)
    tokenizer.save_pretrained(cfg.out)


if __name__ == "__main__":
    main()
