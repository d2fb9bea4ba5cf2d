from transformers import DataCollatorForSeq2Seq, LlamaConfig, LlamaForCausalLM, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer


class SharedKeys(LlamaForCausalLM):
    """Its second layer takes its keys from the cache, where there is one."""

    def __init__(self, config):
        super().__init__(config)
        self.caching = False
        self.model.layers[1].self_attn.k_proj.register_forward_hook(self.share)

    def share(self, module, inputs, keys):
        return keys * (1.0 if self.caching else 0.0)

    def forward(self, *args, use_cache=None, **settings):
        self.caching = bool(self.config.use_cache if use_cache is None else use_cache)
        return super().forward(*args, use_cache=use_cache, **settings)


tok = tokenizer()
config = LlamaConfig(
    vocab_size=len(tok),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    initializer_range=0.3,
)
llama = SharedKeys(config)
llama.config.use_cache = False
trainer = Trainer(
    llama,
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
