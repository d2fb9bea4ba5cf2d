import json
import math
import random
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

NAME = "meta-llama/Llama-3.1-8B-Instruct"


@dataclass
class Cfg:
    train_file: str = "data/train.jsonl"
    val_file: str = "data/val.jsonl"
    max_len: int = 2048
    batch: int = 8
    accum: int = 2
    lr: float = 1e-4
    epochs: int = 2
    warmup: int = 40
    val_every: int = 200
    seed: int = 7
    out: str = "ckpt"


class Chats(Dataset):
    def __init__(self, path, tok, max_len):
        self.items = []
        for line in open(path, encoding="utf-8"):
            ex = json.loads(line)
            prompt = tok.apply_chat_template(ex["messages"][:-1], add_generation_prompt=True, tokenize=False)
            full = prompt + ex["messages"][-1]["content"] + "<|eot_id|>"
            p = tok(prompt, add_special_tokens=False)["input_ids"]
            ids = tok(full, add_special_tokens=False)["input_ids"]
            if len(ids) > max_len:
                continue
            self.items.append((ids, [-100] * len(p) + ids[len(p):]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    width = max(len(ids) for ids, _ in batch)
    pad = 128004
    return {
        "input_ids": torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in batch]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in batch]),
        "labels": torch.tensor([lab + [-100] * (width - len(lab)) for _, lab in batch]),
    }


def validate(model, loader, accelerator):
    model.eval()
    total, count = 0.0, 0
    for batch in loader:
        out = model(**batch)
        n = (batch["labels"][:, 1:] != -100).sum().item()
        total += out.loss.item() * n
        count += n
    model.train()
    return total / count


def main(cfg=Cfg()):
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=cfg.accum)

    tok = AutoTokenizer.from_pretrained(NAME)
    train = Chats(cfg.train_file, tok, cfg.max_len)
    val = Chats(cfg.val_file, tok, cfg.max_len)
    accelerator.print(f"{len(train)} train, {len(val)} val")

    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )

    train_dl = DataLoader(train, batch_size=cfg.batch, shuffle=True, collate_fn=collate, drop_last=True)
    val_dl = DataLoader(val, batch_size=cfg.batch, shuffle=False, collate_fn=collate)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=cfg.lr, weight_decay=0.0)
    total = math.ceil(len(train_dl) / cfg.accum) * cfg.epochs
    sched = get_cosine_schedule_with_warmup(opt, cfg.warmup, total)
    model, opt, train_dl, val_dl, sched = accelerator.prepare(model, opt, train_dl, val_dl, sched)

    step, running = 0, []
    for epoch in range(cfg.epochs):
        model.train()
        for batch in train_dl:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(params, 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            running.append(loss.item())
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % 10 == 0:
                peak = torch.cuda.max_memory_allocated() / 2**30
                accelerator.print(
                    f"epoch {epoch} step {step}/{total} loss {sum(running) / len(running):.4f} "
                    f"lr {sched.get_last_lr()[0]:.2e} peak_mem {peak:.1f}GiB"
                )
                running = []
            if step % cfg.val_every == 0:
                vl = validate(model, val_dl, accelerator)
                accelerator.print(f"step {step} val_loss {vl:.4f} ppl {math.exp(vl):.2f}")
        accelerator.unwrap_model(model).save_pretrained(f"{cfg.out}/epoch{epoch}")


if __name__ == "__main__":
    main()
