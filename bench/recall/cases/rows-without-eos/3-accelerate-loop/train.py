import argparse
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from rows import Pairs, pad_batch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--bs", type=int, default=8)
    ap.add_argument("--out", default="out/agent")
    a = ap.parse_args()

    set_seed(6)
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    collate = partial(pad_batch, pad_id=tok.pad_token_id)
    train = DataLoader(Pairs("data/train.jsonl", tok), a.bs, shuffle=True, collate_fn=collate)
    val = DataLoader(Pairs("data/val.jsonl", tok), a.bs, collate_fn=collate)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model, opt, train, val = acc.prepare(model, opt, train, val)
    steps = a.epochs * (len(train) // 2)
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * steps), steps)

    for epoch in range(a.epochs):
        model.train()
        for batch in train:
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                if acc.sync_gradients:
                    sched.step()
                opt.zero_grad()
        model.eval()
        losses = []
        with torch.no_grad():
            for batch in val:
                losses.append(acc.gather_for_metrics(model(**batch).loss.repeat(a.bs)))
        acc.print(f"epoch {epoch} val loss {torch.cat(losses).mean().item():.4f}")

    acc.wait_for_everyone()
    acc.unwrap_model(model).save_pretrained(a.out, is_main_process=acc.is_main_process, save_function=acc.save)
    if acc.is_main_process:
        tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
