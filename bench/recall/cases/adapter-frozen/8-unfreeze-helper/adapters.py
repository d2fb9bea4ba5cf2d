import torch
from peft import PeftModel


def activate(model, marker: str = "lora_") -> int:
    n = 0
    for name, param in model.named_parameters():
        param.requires_grad_(marker in name)
        if marker in name:
            n += param.numel()
    return n


def restore_adapter(base, folder: str):
    model = PeftModel.from_pretrained(base, folder)
    count = activate(model)
    if count == 0:
        raise RuntimeError(f"nothing to train in {folder}")
    print(f"{count / 1e6:.1f}M adapter weights will be trained")
    return model
