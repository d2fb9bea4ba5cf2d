import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import build_loader

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
EPOCHS, ACCUM = 2, 8


def load_model(name):
    base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).to("cuda")
    config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(base, config)


def setup():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.unk_token
    model = load_model(BASE)
    loader = build_loader("manuals.jsonl", tokenizer, 2)
    return tokenizer, model, loader


def main():
    torch.manual_seed(1)
    tokenizer, model, loader = setup()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.0)
    updates = EPOCHS * -(-len(loader) // ACCUM)
    scheduler = get_cosine_schedule_with_warmup(optimizer, updates // 20, updates)
    model.train()
    for epoch in range(EPOCHS):
        for i, batch in enumerate(loader):
            optimizer.zero_grad(set_to_none=True)
            batch = {k: v.to("cuda") for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            (loss / ACCUM).backward()
            if (i + 1) % ACCUM == 0 or i + 1 == len(loader):
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
                scheduler.step()
                print(f"{epoch} {i + 1} {loss.item():.4f}")
    model.save_pretrained("manuals-adapter")
    tokenizer.save_pretrained("manuals-adapter")


if __name__ == "__main__":
    main()
