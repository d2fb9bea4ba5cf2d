from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        output["completion_mask"] = (output["completion_ids"] != self.processing_class.pad_token_id).int()
        return output


grpo(MyTrainer, mask_truncated_completions=False).train()
