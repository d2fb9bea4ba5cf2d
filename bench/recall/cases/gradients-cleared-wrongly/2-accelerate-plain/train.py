import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from rows import build_loader

NAME = "HuggingFaceTB/SmolLM2-360M-Instruct"
EPOCHS = 3


def validate(model, loader, accelerator):
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in loader:
            loss = model(**batch).loss
            losses.append(accelerator.gather(loss.reshape(1)))
    model.train()
    return torch.cat(losses).mean().item()


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(44)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
    train = build_loader("train.jsonl", tokenizer, 8)
    valid = build_loader("valid.jsonl", tokenizer, 8, shuffle=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    total = EPOCHS * len(train) * accelerator.num_processes
    scheduler = accelerator.prepare(get_linear_schedule_with_warmup(optimizer, total // 20, total))
    for epoch in range(EPOCHS):
        model.train()
        for batch in train:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        accelerator.print(f"epoch {epoch} train {loss.item():.4f} valid {validate(model, valid, accelerator):.4f}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("smol-out", save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained("smol-out")


if __name__ == "__main__":
    main()
