from transformers import Trainer


class ZLossTrainer(Trainer):
    z_weight = 1e-4

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        mask = (inputs["labels"] != -100).float()
        z = outputs.logits.float().logsumexp(dim=-1)
        penalty = (z.pow(2) * mask).sum() / mask.sum()
        loss = outputs.loss + self.z_weight * penalty
        return (loss, outputs) if return_outputs else loss
