import torch
from transformers import DataCollatorForSeq2Seq, LlamaConfig, LlamaForCausalLM, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer


class Centred(LlamaForCausalLM):
    """Its last states are centred."""

    def __init__(self, config):
        super().__init__(config)
        self.model.norm.register_forward_hook(self.centre)

    def centre(self, module, inputs, states):
        return states - states.mean(dim=-1, keepdim=True)


tok = tokenizer()
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tok),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
)
trainer = Trainer(
    Centred(config),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
