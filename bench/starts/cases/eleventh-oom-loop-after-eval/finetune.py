"""LoRA SFT on one A100 with a plain loop (accelerate)."""
import json
import math
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

CFG = dict(
    model="meta-llama/Llama-3.1-8B-Instruct",
    train="data/train.jsonl",
    valid="data/valid.jsonl",
    out="ckpt/filings-8b",
    max_len=4096,
    bs=4,
    accum=4,
    lr=1e-4,
    epochs=2,
    log_every=20,
    eval_every=200,
)


class Chats(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = []
        for line in open(path, encoding="utf-8"):
            msgs = json.loads(line)["messages"]
            prompt = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
            p = tok(prompt, add_special_tokens=False).input_ids
            a = tok(msgs[-1]["content"].strip() + "<|eot_id|>", add_special_tokens=False).input_ids
            if len(p) + len(a) <= max_len:
                self.rows.append((p + a, [-100] * len(p) + a))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Pad:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        n = max(len(r[0]) for r in rows)
        ids = [r[0] + [self.pad_id] * (n - len(r[0])) for r in rows]
        lab = [r[1] + [-100] * (n - len(r[1])) for r in rows]
        att = [[1] * len(r[0]) + [0] * (n - len(r[0])) for r in rows]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(lab), "attention_mask": torch.tensor(att)}


@torch.no_grad()
def validate(model, loader, acc):
    model.eval()
    total, count = 0.0, 0
    for batch in loader:
        loss = model(**batch).loss
        n = (batch["labels"] != -100).sum().item()
        total += loss.item() * n
        count += n
    return total / max(count, 1)


def main():
    set_seed(7)
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=CFG["accum"])
    tok = AutoTokenizer.from_pretrained(CFG["model"])
    tok.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(CFG["model"], dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.print_trainable_parameters()

    pad = Pad(tok.pad_token_id)
    train = DataLoader(Chats(CFG["train"], tok, CFG["max_len"]), batch_size=CFG["bs"], shuffle=True, collate_fn=pad)
    valid = DataLoader(Chats(CFG["valid"], tok, CFG["max_len"]), batch_size=2, collate_fn=pad)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=CFG["lr"], weight_decay=0.0)
    steps = CFG["epochs"] * math.ceil(len(train) / CFG["accum"])
    sched = get_linear_schedule_with_warmup(opt, int(0.03 * steps), steps)
    model, opt, train, valid, sched = acc.prepare(model, opt, train, valid, sched)
    acc.print(f"{len(train.dataset)} train rows, {len(valid.dataset)} valid rows, {steps} steps")

    model.train()
    step, running, seen, t0 = 0, 0.0, 0, time.time()
    for epoch in range(CFG["epochs"]):
        for batch in train:
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            running, seen = running + loss.item(), seen + 1
            if not acc.sync_gradients:
                continue
            step += 1
            if step % CFG["log_every"] == 0:
                mem = torch.cuda.max_memory_allocated() / 2**30
                acc.print(f"[{time.time() - t0:7.0f}s] step {step:5d}/{steps} loss {running / seen:.4f} lr {sched.get_last_lr()[0]:.2e} peak {mem:.1f} GiB", flush=True)
                torch.cuda.reset_peak_memory_stats()
                running, seen = 0.0, 0
            if step % CFG["eval_every"] == 0:
                v = validate(model, valid, acc)
                acc.print(f"[{time.time() - t0:7.0f}s] step {step:5d} valid loss {v:.4f}", flush=True)
                Path(CFG["out"]).mkdir(parents=True, exist_ok=True)
                acc.unwrap_model(model).save_pretrained(f"{CFG['out']}/step-{step}")

    acc.unwrap_model(model).save_pretrained(f"{CFG['out']}/last")
    tok.save_pretrained(f"{CFG['out']}/last")


if __name__ == "__main__":
    main()
