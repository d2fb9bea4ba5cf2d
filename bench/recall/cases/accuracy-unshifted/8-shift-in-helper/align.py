import torch


def next_token_view(logits, labels):
    """Predictions and the tokens they are meant for, same length."""
    return logits[:, :-1].argmax(-1), labels[:, 1:]


def token_accuracy(preds, labels):
    mask = labels != -100
    return torch.stack([((preds == labels) & mask).sum(), mask.sum()])
