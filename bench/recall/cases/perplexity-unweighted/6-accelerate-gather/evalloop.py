import math

import torch


def run_eval(accelerator, model, dataloader, batch_size):
    model.eval()
    losses = []
    for batch in dataloader:
        with torch.no_grad():
            outputs = model(**batch)
        losses.append(accelerator.gather_for_metrics(outputs.loss.repeat(batch_size)))
    losses = torch.cat(losses)
    eval_loss = losses.float().mean().item()
    model.train()
    return {"eval_loss": eval_loss, "perplexity": math.exp(eval_loss) if eval_loss < 20 else float("inf")}
