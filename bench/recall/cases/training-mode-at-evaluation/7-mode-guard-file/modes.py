from contextlib import contextmanager

import torch


@contextmanager
def frozen_mode(model):
    """Evaluation mode and no gradients; the former mode comes back afterwards."""
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield model
    finally:
        model.train(before)


def mean(values):
    values = list(values)
    return sum(values) / max(len(values), 1)
