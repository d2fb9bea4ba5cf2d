import argparse
import json
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--data", default="chats.jsonl")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--warmup", type=int, default=20)
    return p.parse_args()


def make_dataset(path, tok):
    out = []
    for line in open(path, encoding="utf-8"):
        m = json.loads(line)["messages"]
        full = tok.apply_chat_template(m, tokenize=False)
        head = tok.apply_chat_template(m[:-1], tokenize=False, add_generation_prompt=True)
        ids = tok(full, add_special_tokens=False)["input_ids"]
        n = len(tok(head, add_special_tokens=False)["input_ids"])
        out.append((ids, [-100] * n + ids[n:]))
    return out


def main():
    a = parse()
    set_seed(1)
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=a.accum)
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, torch_dtype=torch.float32)

    def collate(b):
        m = max(len(i) for i, _ in b)
        return {
            "input_ids": torch.tensor([i + [tok.pad_token_id] * (m - len(i)) for i, _ in b]),
            "attention_mask": torch.tensor([[1] * len(i) + [0] * (m - len(i)) for i, _ in b]),
            "labels": torch.tensor([l + [-100] * (m - len(l)) for _, l in b]),
        }

    loader = DataLoader(make_dataset(a.data, tok), batch_size=a.bs, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr)
    model, optimizer, loader = acc.prepare(model, optimizer, loader)

    updates = a.epochs * math.ceil(len(loader) / a.accum)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=a.warmup, num_training_steps=updates)
    scheduler = acc.prepare(scheduler)

    done = 0
    for epoch in range(a.epochs):
        model.train()
        for batch in loader:
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if acc.sync_gradients:
                done += 1
                if done % 5 == 0:
                    l = acc.gather(loss.detach()).mean().item()
                    acc.print(f"{{'step': {done}, 'of': {updates}, 'epoch': {epoch}, 'loss': {l:.4f}, 'lr': {scheduler.get_last_lr()[0]:.3e}}}")
    acc.wait_for_everyone()
    acc.unwrap_model(model).save_pretrained("out", is_main_process=acc.is_main_process, save_function=acc.save, state_dict=acc.get_state_dict(model))
    if acc.is_main_process:
        tok.save_pretrained("out")


if __name__ == "__main__":
    main()
