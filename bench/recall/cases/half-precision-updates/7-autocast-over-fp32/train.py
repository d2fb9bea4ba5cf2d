import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import build_loader

NAME = "Qwen/Qwen2.5-1.5B-Instruct"
EPOCHS = 3
COMPUTE = torch.bfloat16


def forward_loss(model, batch):
    with torch.autocast("cuda", dtype=COMPUTE):
        return model(**batch).loss


def main():
    torch.manual_seed(4)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32).to("cuda")
    loader = build_loader("data/faq.jsonl", tokenizer, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    total = len(loader) * EPOCHS
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)

    model.train()
    for epoch in range(EPOCHS):
        for n, batch in enumerate(loader):
            loss = forward_loss(model, {k: v.to("cuda") for k, v in batch.items()})
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            if n % 25 == 0:
                print(epoch, n, round(loss.item(), 4))

    # the stored copy is for serving only
    model.to(COMPUTE).save_pretrained("faq-model")
    tokenizer.save_pretrained("faq-model")


if __name__ == "__main__":
    main()
