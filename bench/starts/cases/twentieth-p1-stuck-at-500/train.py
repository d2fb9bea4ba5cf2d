import argparse
import json
import math
import os
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B-Instruct")
    p.add_argument("--data", default="/data/contracts/sft.jsonl")
    p.add_argument("--out", default="/scratch/ckpt/contracts-8b")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--bs", type=int, default=2)
    p.add_argument("--max-len", type=int, default=4096)
    p.add_argument("--save-every", type=int, default=500)
    return p.parse_args()


class Chats(torch.utils.data.Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = [json.loads(line) for line in open(path)]
        self.tok, self.max_len = tok, max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        messages = self.rows[i]["messages"]
        prompt = self.tok.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False)
        full = self.tok.apply_chat_template(messages, return_dict=False)[: self.max_len]
        n = min(len(prompt), len(full))
        return {"input_ids": full, "labels": [-100] * n + full[n:]}


def collate(batch, pad):
    width = max(len(b["input_ids"]) for b in batch)
    ids = torch.full((len(batch), width), pad)
    labels = torch.full((len(batch), width), -100)
    mask = torch.zeros((len(batch), width), dtype=torch.long)
    for i, b in enumerate(batch):
        n = len(b["input_ids"])
        ids[i, :n] = torch.tensor(b["input_ids"])
        labels[i, :n] = torch.tensor(b["labels"])
        mask[i, :n] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def checkpoint(accelerator, model, tok, out, step):
    if not accelerator.is_main_process:
        return
    folder = os.path.join(out, f"step-{step}")
    accelerator.print(f"saving to {folder}")
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        folder, state_dict=state, safe_serialization=True
    )
    tok.save_pretrained(folder)


def main():
    args = parse()
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(13)
    tok = AutoTokenizer.from_pretrained(args.model)
    pad = tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    data = Chats(args.data, tok, args.max_len)
    loader = DataLoader(data, batch_size=args.bs, shuffle=True, drop_last=True, num_workers=4,
                        collate_fn=lambda b: collate(b, pad))
    model = accelerator.prepare(model)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    loader, opt = accelerator.prepare(loader, opt)
    total = args.epochs * len(loader)
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    accelerator.print(f"{len(data)} rows, {len(loader)} steps an epoch, {total} in all, world {accelerator.num_processes}")

    step, t0 = 0, time.time()
    model.train()
    for epoch in range(args.epochs):
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            step += 1
            if step % 50 == 0:
                shown = accelerator.gather(loss.detach()).mean().item()
                accelerator.print(f"step {step}/{total} loss {shown:.4f} norm {float(norm):.3f} "
                                  f"lr {sched.get_last_lr()[0]:.2e} {time.time() - t0:.0f}s")
            if step % args.save_every == 0:
                checkpoint(accelerator, model, tok, args.out, step)
    checkpoint(accelerator, model, tok, args.out, step)
    accelerator.end_training()


if __name__ == "__main__":
    main()
