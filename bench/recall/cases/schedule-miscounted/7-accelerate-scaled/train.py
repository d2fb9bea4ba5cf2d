import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

from rows import build_loader

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
EPOCHS = 3


def schedule_for(optimizer, loader, accelerator, kind="cosine", warmup=0.05):
    updates = math.ceil(len(loader) / accelerator.gradient_accumulation_steps) * EPOCHS
    ticks = updates * accelerator.num_processes
    return get_scheduler(kind, optimizer, int(warmup * ticks), ticks)


def main():
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
    set_seed(8)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    loader = build_loader("data/support.jsonl", tokenizer, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    scheduler = accelerator.prepare(schedule_for(optimizer, loader, accelerator))
    for epoch in range(EPOCHS):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("support-model", save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained("support-model")


if __name__ == "__main__":
    main()
