import torch.nn.functional as F


def smooth_loss(logits, labels, num_items_in_batch=None, smoothing=0.05):
    logits = logits[:, :-1].float()
    labels = labels[:, 1:].to(logits.device)
    total = F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=-100,
        reduction="sum",
        label_smoothing=smoothing,
    )
    if num_items_in_batch is None:
        return total / (labels != -100).sum().clamp(min=1)
    return total / num_items_in_batch
