import math


def token_losses(model, loader, device):
    total, count = 0.0, 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        loss = model(**batch).loss
        n = int((batch["labels"][:, 1:] != -100).sum())
        total += float(loss) * n
        count += n
    return total, count


def perplexity(model, loader, device="cuda"):
    total, count = token_losses(model, loader, device)
    return math.exp(total / max(count, 1))
