import argparse
import json
import math
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
ap.add_argument("--train", default="data/support_train.jsonl")
ap.add_argument("--bs", type=int, default=2)
ap.add_argument("--epochs", type=int, default=3)
ap.add_argument("--lr", type=float, default=2e-4)
ap.add_argument("--out", default="out")
a = ap.parse_args()

set_seed(7)
acc = Accelerator(mixed_precision="bf16")
tok = AutoTokenizer.from_pretrained(a.model)

ds = load_dataset("json", data_files=a.train, split="train")
n_all = len(ds)
ds = ds.shuffle(seed=7).shard(num_shards=acc.num_processes, index=acc.process_index)


def enc(ex):
    prompt = tok.apply_chat_template([{"role": "user", "content": ex["instruction"]}], add_generation_prompt=True, tokenize=False)
    p = tok(prompt, add_special_tokens=False).input_ids
    r = tok(ex["output"] + "<|im_end|>\n", add_special_tokens=False).input_ids
    return {"input_ids": p + r, "labels": [-100] * len(p) + r}


ds = ds.map(enc, remove_columns=ds.column_names)


def collate(batch):
    n = max(len(b["input_ids"]) for b in batch)
    ids, mask, lab = [], [], []
    for b in batch:
        k = n - len(b["input_ids"])
        ids.append(b["input_ids"] + [tok.pad_token_id] * k)
        mask.append([1] * len(b["input_ids"]) + [0] * k)
        lab.append(b["labels"] + [-100] * k)
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": torch.tensor(lab)}


loader = DataLoader(ds, batch_size=a.bs, shuffle=True, collate_fn=collate, num_workers=2)

model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
for p in model.parameters():
    if p.requires_grad:
        p.data = p.data.float()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=a.lr)

model, opt, loader = acc.prepare(model, opt, loader)
steps = a.epochs * len(loader)
sched = get_cosine_schedule_with_warmup(opt, max(1, steps // 20), steps)

acc.print(f"processes {acc.num_processes}  rows in file {n_all}  rows here {len(ds)}  batch {a.bs}  steps/epoch {len(loader)}  steps {steps}")
t0 = time.time()
step = 0
for epoch in range(a.epochs):
    model.train()
    for batch in loader:
        loss = model(**batch).loss
        acc.backward(loss)
        acc.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        step += 1
        if step % 3 == 0:
            mean = acc.reduce(loss.detach(), "mean").item()
            acc.print(json.dumps({"step": step, "epoch": epoch, "loss": round(mean, 4), "lr": sched.get_last_lr()[0], "sec": round(time.time() - t0, 1)}))

acc.wait_for_everyone()
if acc.is_main_process:
    acc.unwrap_model(model).save_pretrained(a.out)
    tok.save_pretrained(a.out)
