import torch
from transformers import get_linear_schedule_with_warmup


def make_optimizers(model, lr, steps, betas=(0.9, 0.95)):
    """AdamW with two groups and a linear schedule."""
    plain, decayed = [], []
    for name, weight in model.named_parameters():
        (plain if weight.ndim < 2 else decayed).append(weight)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=lr,
        betas=betas,
    )
    return optimizer, get_linear_schedule_with_warmup(optimizer, int(0.05 * steps), steps)
