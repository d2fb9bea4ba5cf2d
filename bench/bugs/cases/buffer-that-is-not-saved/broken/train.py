import torch
from transformers import DataCollatorForSeq2Seq, LlamaConfig, LlamaForCausalLM, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer


class Scaled(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("scale", torch.ones(1), persistent=False)
        self.lm_head.register_forward_hook(lambda module, inputs, logits: logits * self.scale)


tok = tokenizer()
config = LlamaConfig(
    vocab_size=len(tok),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
)
llama = Scaled(config)
llama.scale.fill_(1.5)
trainer = Trainer(
    llama,
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
