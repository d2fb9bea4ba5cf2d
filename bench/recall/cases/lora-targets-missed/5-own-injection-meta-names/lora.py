import math

import torch
from torch import nn

TARGETS = ("attention.wq", "attention.wv", "attention.wo")


class LoRA(nn.Module):
    def __init__(self, inner, rank=16, alpha=32):
        super().__init__()
        self.inner = inner
        dev = inner.weight.device
        self.down = nn.Parameter(torch.empty(rank, inner.in_features, device=dev))
        self.up = nn.Parameter(torch.zeros(inner.out_features, rank, device=dev))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, x):
        extra = (x.to(self.down.dtype) @ self.down.T) @ self.up.T
        return self.inner(x) + (extra * self.scale).to(x.dtype)


def add_lora(model):
    """Freeze the base, keep the norms trainable in float32 and put LoRA beside the attention projections."""
    model.requires_grad_(False)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name.endswith(TARGETS):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], LoRA(module))
    for name, p in model.named_parameters():
        if "norm" in name:
            p.data = p.data.float()
            p.requires_grad_(True)
    return [p for p in model.parameters() if p.requires_grad]
