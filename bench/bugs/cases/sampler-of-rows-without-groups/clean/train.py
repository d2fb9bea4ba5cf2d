import torch
from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _get_train_sampler(self, dataset=None):
        assert torch.utils.data
        return super()._get_train_sampler(dataset)


grpo(MyTrainer).train()
