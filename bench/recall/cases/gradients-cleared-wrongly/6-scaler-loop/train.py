import torch
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from rows import ChatRows, PadRight

CFG = {
    "base": "Qwen/Qwen2.5-0.5B-Instruct",
    "rows": "poems.jsonl",
    "epochs": 3,
    "batch": 4,
    "lr": 1e-5,
    "clip": 1.0,
    "out": "poems-model",
}


def apply_gradients(model, optimizer, scaler):
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CFG["clip"])
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return norm


def main():
    torch.manual_seed(77)
    tokenizer = AutoTokenizer.from_pretrained(CFG["base"])
    model = AutoModelForCausalLM.from_pretrained(CFG["base"], dtype=torch.float32).cuda()
    rows = ChatRows(CFG["rows"], tokenizer)
    loader = DataLoader(rows, CFG["batch"], shuffle=True, collate_fn=PadRight(tokenizer.pad_token_id))
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=0.01)
    scaler = GradScaler("cuda")
    model.train()
    for epoch in range(CFG["epochs"]):
        for i, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with autocast("cuda", dtype=torch.float16):
                loss = model(**batch).loss
            scaler.scale(loss).backward()
            norm = apply_gradients(model, optimizer, scaler)
            if i % 20 == 0:
                print(f"epoch {epoch} {i} loss {loss.item():.4f} grad {norm:.2f}")
    model.save_pretrained(CFG["out"])
    tokenizer.save_pretrained(CFG["out"])


if __name__ == "__main__":
    main()
