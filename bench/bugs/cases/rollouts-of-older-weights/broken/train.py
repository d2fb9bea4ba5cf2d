import torch
from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        with torch.no_grad():
            self.model.lm_head.weight.mul_(1.1)
        return output


grpo(MyTrainer, num_iterations=2, max_steps=3).train()
