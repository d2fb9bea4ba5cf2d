import math

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup, set_seed

from rows import build_loader

NAME = "Qwen/Qwen2.5-0.5B-Instruct"
EPOCHS = 3


def main():
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
    set_seed(3)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
    loader = build_loader("train.jsonl", tokenizer, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    ticks = math.ceil(len(loader) / 8) * EPOCHS * accelerator.num_processes
    scheduler = accelerator.prepare(get_linear_schedule_with_warmup(optimizer, ticks // 20, ticks))
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
        accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("chat-out", save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained("chat-out")


if __name__ == "__main__":
    main()
