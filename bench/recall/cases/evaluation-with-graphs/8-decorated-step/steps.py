import torch


def train_step(model, batch):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(**batch).loss


@torch.inference_mode()
def eval_step(model, batch):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(**batch)
    n = (batch["labels"][:, 1:] != -100).sum().item()
    return out.loss.item() * n, n
