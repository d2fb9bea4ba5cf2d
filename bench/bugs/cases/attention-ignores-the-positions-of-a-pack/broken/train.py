import torch
from transformers import AttentionInterface, DataCollatorWithFlattening, Trainer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer


def attend(module, query, key, value, attention_mask, **settings):
    size = query.shape[2]
    attention_mask = torch.ones(size, size, dtype=torch.bool).tril()[None, None]
    return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)


AttentionInterface.register("own", attend)
AttentionMaskInterface.register("own", sdpa_mask)
trainer = Trainer(
    model(attn_implementation="own"),
    arguments(),
    data_collator=DataCollatorWithFlattening(return_position_ids=True),
    train_dataset=table(encoded(chats())),
    processing_class=tokenizer(),
)
trainer.train()
