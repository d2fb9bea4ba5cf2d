import torch
from peft import LoraConfig, get_peft_model
from torch.optim.lr_scheduler import CosineAnnealingLR
from transformers import AutoModelForCausalLM, AutoTokenizer

from rows import build_loader

BASE = "Qwen/Qwen2.5-3B-Instruct"
EPOCHS = 5


def main():
    torch.manual_seed(9)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).cuda()
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = [p for p in model.parameters() if p.requires_grad]
    loader = build_loader("orders.jsonl", tokenizer, 8)
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    scheduler = CosineAnnealingLR(optimizer, T_max=EPOCHS, eta_min=1e-6)

    for epoch in range(EPOCHS):
        model.train()
        for batch in loader:
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        print(f"epoch {epoch} loss {loss.item():.4f} next lr {scheduler.get_last_lr()[0]:.2e}")
    model.save_pretrained("orders-adapter")
    tokenizer.save_pretrained("orders-adapter")


if __name__ == "__main__":
    main()
