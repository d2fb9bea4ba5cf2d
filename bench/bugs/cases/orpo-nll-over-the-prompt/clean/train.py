from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from bench.bugs.inputs.runs import arguments, model, pairs, table, tokenizer


class Own(ORPOTrainer):
    """The NLL of the chosen answer alone."""

    def concatenated_forward(self, model, batch):
        answered = batch["chosen_labels"] != -100
        made = list(super().concatenated_forward(model, batch))
        logits = made[2][:, : answered.shape[1] - 1]
        wanted = batch["chosen_labels"][:, 1:].flatten()
        made[4] = self.loss_function(logits, wanted)
        return tuple(made)

    def loss_function(self, logits, wanted):
        import torch.nn.functional as F

        return F.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=-100)


trainer = Own(
    model(), args=arguments(ORPOConfig), train_dataset=table(pairs()), processing_class=tokenizer()
)
trainer.train()
