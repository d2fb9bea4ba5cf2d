import torch


def adapter_groups(model, base_lr, ratio):
    first, second = [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        (second if "lora_B" in name else first).append(p)
    return [{"params": first, "lr": base_lr}, {"params": second, "lr": base_lr * ratio}]


def build_optimizer(model, base_lr=1e-4, ratio=4):
    return torch.optim.AdamW(adapter_groups(model, base_lr, ratio), lr=base_lr, weight_decay=0.0)
