import torch
import torch.nn.functional as F
from gpt import GPT, LoRALinear
from torch.utils.data import DataLoader, TensorDataset


def add_lora(model):
    model.requires_grad_(False)
    for block in model.blocks:
        block.qkv = LoRALinear(block.qkv)
        block.out = LoRALinear(block.out)
    return [p for p in model.parameters() if p.requires_grad]


def main():
    torch.manual_seed(3)
    model = GPT()
    model.load_state_dict(torch.load("gpt_base.pt", map_location="cpu", weights_only=True))
    weights = add_lora(model)
    model.cuda().train()
    data = torch.load("rows.pt", weights_only=True)  # ids and labels, labels are -100 on prompt and padding
    loader = DataLoader(TensorDataset(data["ids"], data["labels"]), batch_size=8, shuffle=True)
    optimizer = torch.optim.AdamW(weights, lr=2e-4, weight_decay=0.0)
    for epoch in range(3):
        for ids, labels in loader:
            ids, labels = ids.cuda(), labels.cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} loss {loss.item():.4f}")
    torch.save({n: p for n, p in model.state_dict().items() if n.endswith((".a", ".b"))}, "lora.pt")


if __name__ == "__main__":
    main()
