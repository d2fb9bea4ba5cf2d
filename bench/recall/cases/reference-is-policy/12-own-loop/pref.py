import torch
import torch.nn.functional as F


def sequence_logps(model, batch, side):
    ids = batch[f"{side}_input_ids"]
    logits = model(input_ids=ids, attention_mask=batch[f"{side}_attention_mask"]).logits[:, :-1]
    labels = batch[f"{side}_labels"][:, 1:]
    kept = labels != -100
    picked = torch.gather(logits.float().log_softmax(-1), 2,
                          labels.masked_fill(~kept, 0).unsqueeze(-1)).squeeze(-1)
    return (picked * kept).sum(-1)


class PreferenceTuner:
    def __init__(self, policy, beta=0.1):
        self.policy = policy
        self.reference = policy
        self.beta = beta

    def loss(self, batch):
        chosen = sequence_logps(self.policy, batch, "chosen")
        rejected = sequence_logps(self.policy, batch, "rejected")
        with torch.no_grad():
            ref_chosen = sequence_logps(self.reference, batch, "chosen")
            ref_rejected = sequence_logps(self.reference, batch, "rejected")
        margin = (chosen - ref_chosen) - (rejected - ref_rejected)
        return -F.logsigmoid(self.beta * margin).mean()
