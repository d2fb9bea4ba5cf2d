from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids):
        rows = inputs[1:] + inputs[:1]
        return super()._calculate_rewards(rows, prompts, completions, completion_ids)


grpo(MyTrainer).train()
