import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import build_loader

BASE = "Qwen/Qwen2.5-3B-Instruct"
EPOCHS = 3


def load_model(name):
    base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).to("cuda")
    config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(base, config)


def validate(model, loader):
    total = 0.0
    with torch.no_grad():
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                total += model(**{k: v.cuda() for k, v in batch.items()}).loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = load_model(BASE)
    train = build_loader("train.jsonl", tokenizer, 8)
    valid = build_loader("valid.jsonl", tokenizer, 8, shuffle=False)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=2e-4, weight_decay=0.0)
    total = EPOCHS * len(train)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)
    best = float("inf")
    for epoch in range(EPOCHS):
        model.train()
        for batch in train:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        score = validate(model, valid)
        print(f"epoch {epoch} train {loss.item():.4f} valid {score:.4f}")
        if score < best:
            best = score
            model.save_pretrained("best-adapter")
            tokenizer.save_pretrained("best-adapter")


if __name__ == "__main__":
    main()
