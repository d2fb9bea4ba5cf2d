import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from rows import build_loader

NAME = "HuggingFaceTB/SmolLM2-360M-Instruct"
EPOCHS = 3


def main():
    accelerator = Accelerator()
    set_seed(5)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
    loader = build_loader("train.jsonl", tokenizer, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = EPOCHS * len(loader) * accelerator.num_processes
    scheduler = accelerator.prepare(get_linear_schedule_with_warmup(optimizer, total // 20, total))
    for epoch in range(EPOCHS):
        model.train()
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("smol-sft", save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained("smol-sft")


if __name__ == "__main__":
    main()
