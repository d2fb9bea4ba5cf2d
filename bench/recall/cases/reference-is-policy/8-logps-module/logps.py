import torch


def sequence_logps(net, b):
    logits = net(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits[:, :-1].float()
    y = b["labels"][:, 1:]
    keep = y != -100
    lp = logits.log_softmax(-1).gather(-1, y.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
    return (lp * keep).sum(-1)


def reference_logps(policy, b):
    with torch.no_grad(), policy.disable_adapter():
        return sequence_logps(policy, b)
