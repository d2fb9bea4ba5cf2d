import torch
from transformers import DataCollatorForSeq2Seq, GPT2Config, GPT2LMHeadModel, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer

tok = tokenizer()
tok.padding_side = "left"
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=len(tok), n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.2
)
trainer = Trainer(
    GPT2LMHeadModel(config),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
