import torch
from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        lengths = output["completion_mask"].sum(1)
        places = torch.arange(output["completion_ids"].shape[1])
        output["completion_mask"] = (places < lengths[:, None]).int()
        return output


grpo(MyTrainer).train()
