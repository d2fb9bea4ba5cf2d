import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from lora import add_lora
from rows import build_loader

BASE = "meta-llama/Llama-3.2-3B-Instruct"
EPOCHS = 2


def main():
    torch.manual_seed(18)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).cuda()
    weights = add_lora(model)
    loader = build_loader("train.jsonl", tokenizer, 4)
    optimizer = torch.optim.AdamW(weights, lr=2e-4, weight_decay=0.0)
    total = EPOCHS * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)
    model.train()
    for epoch in range(EPOCHS):
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} loss {loss.item():.4f}")
    torch.save({n: p.detach().cpu() for n, p in model.named_parameters() if p.requires_grad}, "lora.pt")
    tokenizer.save_pretrained("lora-tokenizer")


if __name__ == "__main__":
    main()
