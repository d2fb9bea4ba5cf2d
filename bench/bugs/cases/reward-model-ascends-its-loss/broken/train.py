from trl import RewardConfig, RewardTrainer

from bench.bugs.inputs.runs import arguments, pairs, table, tokenizer
from tests.auditing.tiny import reward_model


class MyTrainer(RewardTrainer):
    def create_optimizer(self, *args, **kwargs):
        optimizer = super().create_optimizer(*args, **kwargs)
        for group in optimizer.param_groups:
            group["maximize"] = True
        return optimizer


tokens = tokenizer()
trainer = MyTrainer(
    reward_model(pad_token_id=tokens.pad_token_id),
    args=arguments(RewardConfig, per_device_train_batch_size=4, learning_rate=1e-3),
    train_dataset=table(pairs()),
    processing_class=tokens,
)
trainer.train()
