import torch
from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _compute_loss(self, model, inputs):
        logps, *_ = self._get_per_token_logps_and_entropies(
            model, *sequences(inputs), inputs["completion_ids"].shape[1]
        )
        mask = inputs["completion_mask"]
        parts = -(logps - logps.detach()).exp() * inputs["advantages"][:, None] * mask
        return (parts.sum(1) / mask.sum(1).clamp(min=1)).mean()


def sequences(inputs):
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    return ids, torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)


grpo(MyTrainer, loss_type="dr_grpo").train()
