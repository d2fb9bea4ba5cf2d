from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def _generate_single_turn(self, *args, **kwargs):
        ids, logps = super()._generate_single_turn(*args, **kwargs)
        texts = self.processing_class.batch_decode(ids)
        ids = self.processing_class(texts)["input_ids"]
        return ids, logps


grpo(MyTrainer).train()
