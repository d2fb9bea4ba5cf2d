import torch


@torch.inference_mode()
def batch_nll(model, batch):
    batch = {k: v.to(model.device) for k, v in batch.items()}
    tokens = int((batch["labels"][:, 1:] != -100).sum())
    loss = model(**batch).loss.item()
    return loss * tokens, tokens
