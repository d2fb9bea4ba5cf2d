import torch
from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


grpo(MyTrainer).train()
