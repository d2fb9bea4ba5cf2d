import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from memory import checkpoint_layers, wrapped_count
from rows import build_loader

BASE = "Qwen/Qwen2.5-7B-Instruct"
EPOCHS, ACCUM = 2, 8


def load():
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).cuda()
    model.config.use_cache = False
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    checkpoint_layers(model)
    print("wrapped layers:", wrapped_count(model))
    return model


def main():
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = load()
    loader = build_loader("train.jsonl", tokenizer, 2)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.0)
    updates = EPOCHS * -(-len(loader) // ACCUM)
    scheduler = get_cosine_schedule_with_warmup(optimizer, updates // 20, updates)
    model.train()
    for epoch in range(EPOCHS):
        for i, batch in enumerate(loader, start=1):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
            (loss / ACCUM).backward()
            if i % ACCUM == 0 or i == len(loader):
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} loss {loss.item():.4f}")
    model.save_pretrained("adapter")
    tokenizer.save_pretrained("adapter")


if __name__ == "__main__":
    main()
