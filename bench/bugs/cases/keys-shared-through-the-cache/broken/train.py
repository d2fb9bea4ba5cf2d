from transformers import DataCollatorForSeq2Seq, LlamaConfig, LlamaForCausalLM, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer


class SharedKeys(LlamaForCausalLM):
    """Its second layer takes its keys from the cache, where there is one."""

    def __init__(self, config):
        super().__init__(config)
        self.caching = False
        self.register_forward_pre_hook(self.begin, with_kwargs=True)
        self.model.layers[1].self_attn.k_proj.register_forward_hook(self.share)

    def begin(self, module, args, settings):
        asked = settings.get("use_cache")
        self.caching = self.config.use_cache if asked is None else asked

    def share(self, module, inputs, keys):
        return keys * (1.0 if self.caching else 0.0)


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
