import torch
from transformers import LlamaForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput
from trl import RewardConfig, RewardTrainer

from bench.bugs.inputs.runs import arguments, pairs, table, tokenizer
from tests.auditing.tiny import reward_model


class MyModel(LlamaForSequenceClassification):
    def forward(self, input_ids=None, attention_mask=None, **others):
        hidden = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        places = torch.full((len(hidden),), -1)
        last = hidden[torch.arange(len(hidden)), places]
        return SequenceClassifierOutput(logits=self.score(last))


tokens = tokenizer()
config = reward_model(pad_token_id=tokens.pad_token_id).config
trainer = RewardTrainer(
    MyModel(config),
    args=arguments(RewardConfig, per_device_train_batch_size=4),
    train_dataset=table(pairs()),
    processing_class=tokens,
)
trainer.train()
