import torch
from transformers import BatchEncoding, get_cosine_schedule_with_warmup

from prepare import load
from rows import build_loader

EPOCHS = 3


def main():
    torch.manual_seed(2)
    tokenizer, model = load("Qwen/Qwen2.5-0.5B-Instruct")
    loader = build_loader("cases.jsonl", tokenizer, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    total = EPOCHS * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)
    model.train()
    for epoch in range(EPOCHS):
        for batch in loader:
            batch = BatchEncoding(batch)
            loss = model(**batch.to(model.device)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} loss {loss.item():.4f}")
    model.save_pretrained("case-model")
    tokenizer.save_pretrained("case-model")


if __name__ == "__main__":
    main()
