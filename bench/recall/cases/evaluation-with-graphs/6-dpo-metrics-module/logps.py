import torch


def sequence_logps(model, batch, key):
    ids = batch[f"{key}_input_ids"]
    mask = batch[f"{key}_attention_mask"]
    labels = batch[f"{key}_labels"][:, 1:]
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
    keep = labels != -100
    token_logp = torch.gather(logits.log_softmax(-1), 2, labels.masked_fill(~keep, 0).unsqueeze(2)).squeeze(2)
    return (token_logp * keep).sum(-1)


def reference_logps(model, batch, key):
    with torch.no_grad():
        return sequence_logps(model, batch, key)
