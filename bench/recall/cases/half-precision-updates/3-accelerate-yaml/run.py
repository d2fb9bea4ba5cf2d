import math
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from rows import build_loader


def main(path):
    cfg = OmegaConf.load(path)
    set_seed(11)
    accelerator = Accelerator(gradient_accumulation_steps=cfg.accumulate)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name, dtype=getattr(torch, cfg.model.weights))
    loader = build_loader(cfg.data.train, tokenizer, cfg.optim.batch_size, cfg.data.max_length)

    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.optim.lr, weight_decay=cfg.optim.weight_decay)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    updates = math.ceil(len(loader) / cfg.accumulate) * cfg.optim.epochs
    total = updates * accelerator.num_processes
    scheduler = accelerator.prepare(
        get_linear_schedule_with_warmup(optimizer, int(cfg.optim.warmup_share * total), total)
    )

    for epoch in range(cfg.optim.epochs):
        model.train()
        running = 0.0
        for i, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            running += loss.detach().float().item()
            if i % 40 == 39:
                accelerator.print(f"{epoch}:{i} loss {running / 40:.4f}")
                running = 0.0

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(cfg.out, save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained(cfg.out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "config.yaml")
