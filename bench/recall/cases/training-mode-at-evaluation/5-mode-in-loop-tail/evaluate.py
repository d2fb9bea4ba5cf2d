import torch


def perplexity(model, loader, accelerator):
    model.eval()
    nll, count = 0.0, 0
    for batch in loader:
        with torch.no_grad():
            loss = model(**batch).loss
        tokens = (batch["labels"][:, 1:] != -100).sum()
        both = accelerator.gather(torch.stack([loss.float() * tokens, tokens.float()]).unsqueeze(0))
        nll += both[:, 0].sum().item()
        count += both[:, 1].sum().item()
        model.train()
    return float(torch.exp(torch.tensor(nll / max(count, 1))))
