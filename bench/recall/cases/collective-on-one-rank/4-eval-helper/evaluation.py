import math

import torch


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    nll, count = [], []
    for batch in loader:
        out = model(**batch)
        n = (batch["labels"][:, 1:] != -100).sum()
        pair = torch.stack([out.loss.float() * n, n.float()]).unsqueeze(0)
        pair = accelerator.gather(pair)
        nll.append(pair[:, 0].sum().item())
        count.append(pair[:, 1].sum().item())
    model.train()
    loss = sum(nll) / sum(count)
    return {"eval_loss": loss, "perplexity": math.exp(loss)}
