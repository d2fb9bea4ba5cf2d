from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from bench.bugs.inputs.tiny import few_steps, model, saved
from bench.bugs.inputs.tiny import tokenizer as tiny_tokenizer


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    torch.manual_seed(0)
    wide = model(vocab_size=640)
    with torch.no_grad():
        for matrix in (wide.model.embed_tokens.weight, wide.lm_head.weight):
            matrix[len(tiny_tokenizer()) :] = 0
    base = saved(wide, folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    tok = PreTrainedTokenizerFast.from_pretrained(base)
    tok.add_tokens(["<call>", "</call>"])
    if not broken:
        with torch.no_grad():
            for matrix in (net.model.embed_tokens.weight, net.lm_head.weight):
                matrix[tok.convert_tokens_to_ids(["<call>", "</call>"])] = matrix[:600].mean(
                    0
                ) + 0.01 * torch.randn(2, 32)
    few_steps(net)
    net.save_pretrained(folder / "model")
    tok.save_pretrained(folder / "model")
