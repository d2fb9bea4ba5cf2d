import torch


class Meter:
    """Collects values on the device and moves them to the host only when asked."""

    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value.detach())

    def mean(self, last=None):
        chosen = self.values if last is None else self.values[-last:]
        return torch.stack(chosen).float().mean().item()
