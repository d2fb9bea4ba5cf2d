import torch
import torch.nn.functional as F


class LanguageModelMetrics:
    """Loss, perplexity and confidence on the answer tokens."""

    def __init__(self, prefix=""):
        self.prefix = prefix

    def __call__(self, prediction):
        logits = torch.from_numpy(prediction.predictions)[:, :-1]
        labels = torch.from_numpy(prediction.label_ids)[:, 1:]
        keep = labels != -100
        logits, labels = logits[keep].float(), labels[keep]
        nll = F.cross_entropy(logits, labels)
        confidence = logits.softmax(-1).max(-1).values.mean()
        return {
            f"{self.prefix}nll": nll.item(),
            f"{self.prefix}perplexity": nll.exp().item(),
            f"{self.prefix}confidence": confidence.item(),
        }
