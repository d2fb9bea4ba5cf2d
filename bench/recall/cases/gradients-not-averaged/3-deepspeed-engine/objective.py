import torch.nn.functional as F


def label_smoothed_loss(engine, batch, eps=0.05):
    labels = batch["labels"][:, 1:]
    out = engine.module(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    logits = out.logits[:, :-1].float()
    return F.cross_entropy(
        logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100, label_smoothing=eps
    )
