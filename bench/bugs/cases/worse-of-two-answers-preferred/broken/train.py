from trl.experimental.online_dpo import OnlineDPOTrainer

from tests.auditing.tiny_rollouts import online_dpo


class MyTrainer(OnlineDPOTrainer):
    def _calculate_rewards_from_functions(self, **given):
        rewards = super()._calculate_rewards_from_functions(**given)
        return -rewards


online_dpo(MyTrainer).train()
