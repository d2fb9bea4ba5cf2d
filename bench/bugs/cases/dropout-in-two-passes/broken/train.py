import torch
from transformers import GPT2Config, GPT2LMHeadModel
from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, pairs, table, tokenizer

tok = tokenizer()
config = GPT2Config(vocab_size=len(tok), n_embd=32, n_layer=2, n_head=4, n_positions=256)


def made():
    torch.manual_seed(0)
    return GPT2LMHeadModel(config)


trainer = DPOTrainer(
    made(),
    made(),
    args=arguments(DPOConfig, disable_dropout=False),
    train_dataset=table(pairs()),
    processing_class=tok,
)
trainer.train()
