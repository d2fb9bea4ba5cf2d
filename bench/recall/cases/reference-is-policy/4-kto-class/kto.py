import copy

import torch


class KTO:
    """Unpaired feedback: every row has a completion and a thumbs up or down."""

    def __init__(self, policy, beta=0.1, w_good=1.0, w_bad=1.0):
        self.policy = policy
        self.anchor = copy.copy(policy).eval()
        self.beta, self.w_good, self.w_bad = beta, w_good, w_bad

    @staticmethod
    def logps(net, b):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = net(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
        y = b["labels"][:, 1:]
        keep = y != -100
        lp = logits[:, :-1].float().log_softmax(-1).gather(-1, y.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
        return (lp * keep).sum(-1)

    def ratio(self, b):
        with torch.no_grad():
            ref = self.logps(self.anchor, b)
        return self.logps(self.policy, b) - ref

    def loss(self, batch, mismatched):
        with torch.no_grad():
            z0 = self.ratio(mismatched).mean().clamp(min=0)
        r = self.ratio(batch)
        good = batch["good"]
        up = self.w_good * (1 - torch.sigmoid(self.beta * (r - z0)))
        down = self.w_bad * (1 - torch.sigmoid(self.beta * (z0 - r)))
        return torch.where(good, up, down).mean()
