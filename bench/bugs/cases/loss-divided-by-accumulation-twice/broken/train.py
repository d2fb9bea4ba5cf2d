from trl import GRPOTrainer

from tests.auditing.tiny_rollouts import grpo


class MyTrainer(GRPOTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = super().compute_loss(model, inputs)
        return loss / self.args.gradient_accumulation_steps


grpo(MyTrainer, gradient_accumulation_steps=2).train()
