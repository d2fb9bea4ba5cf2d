from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = -output["advantages"]
        return output


grpo(MyTrainer, scale_rewards=False).train()
