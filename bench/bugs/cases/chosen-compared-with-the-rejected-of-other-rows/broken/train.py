import torch.nn.functional as F
from trl import RewardConfig, RewardTrainer

from bench.bugs.inputs.runs import arguments, pairs, table, tokenizer
from tests.auditing.tiny import reward_model


class MyTrainer(RewardTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        scores = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        chosen, rejected = scores.chunk(2)
        loss = -F.logsigmoid(chosen - rejected.roll(1, 0)).mean()
        return (loss, {}) if return_outputs else loss


tokens = tokenizer()
trainer = MyTrainer(
    reward_model(pad_token_id=tokens.pad_token_id),
    args=arguments(RewardConfig, per_device_train_batch_size=4),
    train_dataset=table(pairs()),
    processing_class=tokens,
)
trainer.train()
