import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import ChatRows, PadRight

BASE = "Qwen/Qwen2.5-7B-Instruct"
EPOCHS = 2
ACCUM = 4


def load():
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    cfg = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, cfg)
    model.print_trainable_parameters()
    return model


def main():
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = load()
    rows = ChatRows("tickets.jsonl", tokenizer)
    loader = DataLoader(rows, 4, shuffle=True, drop_last=True, collate_fn=PadRight(tokenizer.pad_token_id))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0)
    updates = (len(loader) // ACCUM) * EPOCHS
    scheduler = get_cosine_schedule_with_warmup(optimizer, updates // 20, updates)

    model.train()
    for epoch in range(EPOCHS):
        for i, batch in enumerate(loader):
            batch = {k: v.to(0) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            (loss / ACCUM).backward()
            if (i + 1) % ACCUM == 0:
                torch.nn.utils.clip_grad_norm_(trained, 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
        optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} last loss {loss.item():.4f}")
    model.save_pretrained("tickets-adapter")
    tokenizer.save_pretrained("tickets-adapter")


if __name__ == "__main__":
    main()
