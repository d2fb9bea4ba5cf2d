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


def main():
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = load_model(BASE)
    loader = build_loader("bank_chat.jsonl", tokenizer, 8)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=2e-4, weight_decay=0.0)
    total = EPOCHS * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)
    model.train()
    for epoch in range(EPOCHS):
        for n, batch in enumerate(loader):
            batch = {k: v.to("cuda") for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.zero_grad()
            optimizer.step()
            scheduler.step()
            if n % 10 == 0:
                print(f"{epoch}/{n} loss={loss.item():.4f}")
    model.save_pretrained("bank-adapter")
    tokenizer.save_pretrained("bank-adapter")


if __name__ == "__main__":
    main()
