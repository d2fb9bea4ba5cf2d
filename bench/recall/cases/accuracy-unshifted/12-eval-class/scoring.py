import torch


class TokenScore:
    """Running share of next tokens that the model ranks first."""

    def __init__(self):
        self.right = 0
        self.count = 0

    @torch.no_grad()
    def update(self, logits, labels):
        guess = logits[:, :-1].argmax(-1)
        target = labels[:, 1:]
        self.right += (guess == target).sum().item()
        self.count += target.numel()

    @property
    def value(self):
        return self.right / max(self.count, 1)
