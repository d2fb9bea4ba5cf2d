import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from meters import Meter

NAME = "HuggingFaceTB/SmolLM2-360M"
EPOCHS = 2


def main():
    set_seed(3)
    accelerator = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(NAME)
    tok.pad_token = tok.eos_token
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
    rows = load_dataset("json", data_files="recipes.jsonl", split="train")

    def collate(batch):
        enc = tok([r["text"] + tok.eos_token for r in batch], truncation=True, max_length=1024,
                  padding=True, padding_side="right", return_tensors="pt")
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    loader = DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = len(loader) * EPOCHS
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)

    losses = Meter()
    model.train()
    for epoch in range(EPOCHS):
        for step, batch in enumerate(loader):
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.add(loss)
            if step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {losses.mean(last=50):.4f}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("out/recipes")
    if accelerator.is_main_process:
        tok.save_pretrained("out/recipes")


if __name__ == "__main__":
    main()
