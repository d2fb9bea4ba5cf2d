"""LoRA SFT, own loop (accelerate)."""
import json
import os
import re
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

CFG = dict(
    model="mistralai/Mistral-7B-Instruct-v0.3",
    data="data/sft.jsonl",
    out="/mnt/nfs/runs/mistral-support",
    epochs=8,
    bs=2,
    lr=1e-4,
    max_len=1024,
    save_every=50,
    keep=2,
)


def build(tok):
    rows = []
    for line in open(CFG["data"]):
        msgs = json.loads(line)["messages"]
        p = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
        t = tok.apply_chat_template(msgs, tokenize=False)
        p = tok(p, add_special_tokens=False)["input_ids"]
        t = tok(t, add_special_tokens=False)["input_ids"]
        rows.append((t[: CFG["max_len"]], ([-100] * len(p) + t[len(p):])[: CFG["max_len"]]))
    return rows


def collate(batch):
    n = max(len(x) for x, _ in batch)
    ids = torch.zeros(len(batch), n, dtype=torch.long)
    att = torch.zeros(len(batch), n, dtype=torch.long)
    lab = torch.full((len(batch), n), -100)
    for i, (x, y) in enumerate(batch):
        ids[i, : len(x)] = torch.tensor(x)
        att[i, : len(x)] = 1
        lab[i, : len(y)] = torch.tensor(y)
    return {"input_ids": ids, "attention_mask": att, "labels": lab}


def save_checkpoint(accelerator, step):
    out = Path(CFG["out"])
    out.mkdir(parents=True, exist_ok=True)
    accelerator.wait_for_everyone()
    old = [d for d in os.listdir(out) if re.fullmatch(r"step-\d+", d)]
    old.sort(key=lambda d: int(d.split("-")[1]))
    for d in old[: max(0, len(old) - CFG["keep"] + 1)]:
        shutil.rmtree(out / d)
    accelerator.save_state(str(out / f"step-{step}"))
    accelerator.wait_for_everyone()


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(7)
    tok = AutoTokenizer.from_pretrained(CFG["model"])
    model = AutoModelForCausalLM.from_pretrained(CFG["model"], torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    loader = DataLoader(build(tok), batch_size=CFG["bs"], shuffle=True, collate_fn=collate)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=CFG["lr"])
    total = len(loader) * CFG["epochs"]
    sched = get_cosine_schedule_with_warmup(opt, int(total * 0.05), total)
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)

    step = 0
    bar = tqdm(total=len(loader) * CFG["epochs"], disable=not accelerator.is_local_main_process)
    for epoch in range(CFG["epochs"]):
        model.train()
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(params, 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            step += 1
            bar.update(1)
            if step % 10 == 0:
                accelerator.print(f"step {step} epoch {epoch} loss {loss.item():.4f}")
            if step % CFG["save_every"] == 0:
                save_checkpoint(accelerator, step)

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(CFG["out"] + "/final")
        tok.save_pretrained(CFG["out"] + "/final")
    accelerator.end_training()


if __name__ == "__main__":
    main()
