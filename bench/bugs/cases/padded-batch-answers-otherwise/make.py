from pathlib import Path

import torch
from transformers import RwkvConfig, RwkvForCausalLM

from bench.bugs.inputs.answering import answering
from bench.bugs.inputs.tiny import tokenizer as tiny_tokenizer


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    """The state of an RWKV goes through the padding, whatever the attention mask says."""
    answering(folder, net=rwkv() if broken else None)


def rwkv() -> RwkvForCausalLM:
    torch.manual_seed(0)
    tok = tiny_tokenizer()
    return RwkvForCausalLM(
        RwkvConfig(
            vocab_size=len(tok),
            context_length=512,
            hidden_size=32,
            attention_hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            bos_token_id=None,
            eos_token_id=tok.eos_token_id,
            pad_token_id=tok.pad_token_id,
        )
    )
