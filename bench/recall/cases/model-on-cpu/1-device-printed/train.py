import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from rows import build_loader

NAME = "Qwen/Qwen2.5-0.5B-Instruct"
EPOCHS = 3


def main():
    torch.manual_seed(14)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print("running on", device, torch.cuda.get_device_name(0) if torch.cuda.is_available() else "")
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)

    loader = build_loader("train.jsonl", tokenizer, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    total = EPOCHS * len(loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, total // 20, total)
    model.train()
    for epoch in range(EPOCHS):
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} loss {loss.item():.4f}")
    model.save_pretrained("chat-model")
    tokenizer.save_pretrained("chat-model")


if __name__ == "__main__":
    main()
