import sys

import matplotlib.pyplot as plt
import torch
import yaml
from accelerate import Accelerator
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler


def plot(values, path):
    plt.figure(figsize=(6, 3))
    plt.plot(values.numpy())
    plt.xlabel("step")
    plt.ylabel("loss")
    plt.tight_layout()
    plt.savefig(path)


def train(cfg):
    acc = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(cfg["model"])
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.float32)
    loader = DataLoader(
        load_from_disk(cfg["data"]),
        batch_size=cfg["batch_size"],
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])
    steps = cfg["epochs"] * len(loader)
    sched = get_scheduler("cosine", opt, num_warmup_steps=steps // 20, num_training_steps=steps)
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)

    losses = []
    model.train()
    for epoch in range(cfg["epochs"]):
        for batch in loader:
            outputs = model(**batch)
            loss = outputs.loss
            acc.backward(loss)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            losses.append(loss)
            if len(losses) % cfg["log_every"] == 0:
                recent = torch.stack(losses[-cfg["log_every"]:]).mean()
                acc.print(f"step {len(losses)} loss {recent.item():.4f}")

    if acc.is_main_process:
        plot(torch.stack(losses).detach().cpu().float(), cfg["out"] + "_loss.png")
        acc.unwrap_model(model).save_pretrained(cfg["out"])
        tok.save_pretrained(cfg["out"])


if __name__ == "__main__":
    with open(sys.argv[1]) as fh:
        train(yaml.safe_load(fh))
