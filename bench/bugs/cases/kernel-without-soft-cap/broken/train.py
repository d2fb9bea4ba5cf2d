import torch
from transformers import (
    AttentionInterface,
    DataCollatorForSeq2Seq,
    Gemma2Config,
    Gemma2ForCausalLM,
    Trainer,
)
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer


def attend(*given, softcap=None, **settings):
    return eager_attention_forward(*given, softcap=None, **settings)


AttentionInterface.register("own", attend)
AttentionMaskInterface.register("own", eager_mask)
tok = tokenizer()
torch.manual_seed(0)
config = Gemma2Config(
    vocab_size=len(tok),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    initializer_range=0.5,
    attn_logit_softcapping=2.0,
    attn_implementation="own",
)
trainer = Trainer(
    Gemma2ForCausalLM(config),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
