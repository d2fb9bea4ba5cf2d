"""Masks of own attention that leave later positions visible, and causal ones."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Attention(nn.Module):
    def __init__(self, width, block):
        super().__init__()
        self.layer = nn.MultiheadAttention(width, 4, batch_first=True)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))
        self.register_buffer("wide", torch.tril(torch.ones(block, block), diagonal=2))
    def forward(self, q, k, v, t):
        scores = q @ k.transpose(-2, -1)
"""
LATER = {
    "one too many": "m = torch.tril(torch.ones(t, t), diagonal=1).bool()\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "other sense": "m = torch.triu(torch.ones(t, t), diagonal=1).bool()\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "other sense of a layer": "m = torch.tril(torch.ones(t, t)).bool()\n"
    "        return self.layer(q, k, v, attn_mask=m)",
    "numbers that are added": "m = torch.tril(torch.ones(t, t))\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "truth values as numbers that are added": "m = torch.tril(torch.ones(t, t)).bool().float()\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "truth values cast to numbers": "m = (torch.ones(t, t).tril() == 1).to(torch.float16)\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "wrong half filled": 'scores = scores.masked_fill(self.bias[:, :, :t, :t] == 1, float("-inf"))\n'
    "        return scores.softmax(-1) @ v",
    "wide buffer": "scores = scores.masked_fill(self.wide[:t, :t] == 0, -1e9)\n"
    "        return F.softmax(scores, -1) @ v",
    "positions": "i = torch.arange(t)\n        m = i[:, None] <= i[None, :]\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "filled with infinity": 'm = torch.zeros(t, t).masked_fill(torch.tril(torch.ones(t, t)).bool(), float("-inf"))\n'
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
}
CAUSAL = {
    "lower": "m = torch.tril(torch.ones(t, t)).bool()\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "argument": "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "turned": "m = ~torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "infinity": 'm = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)\n'
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "buffer": 'scores = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))\n'
    "        return scores.softmax(-1) @ v",
    "layer": "m = torch.triu(torch.ones(t, t), diagonal=1).bool()\n        return self.layer(q, k, v, attn_mask=m)",
    "layer's own": "m = nn.Transformer.generate_square_subsequent_mask(t)\n"
    "        return self.layer(q, k, v, attn_mask=m)",
    "positions": "i = torch.arange(t)\n        m = i[:, None] >= i[None, :]\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "truth values made to minus infinity": "m = torch.triu(torch.ones(t, t), 1).bool().float() * -1e9\n"
    "        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
    "no mask": "return F.scaled_dot_product_attention(q, k, v)",
    "padding": "return F.scaled_dot_product_attention(q, k, v, attn_mask=padding[:, None, None, :])",
}


def count(text: str) -> int:
    rule = find_rule("mask-without-causality")
    return len(run_rule(parse_module(text, "model.py"), rule).findings)


@pytest.mark.parametrize("way", LATER)
def test_a_mask_that_shows_later_positions_is_reported(way: str) -> None:
    assert count(HEAD + "        " + LATER[way] + "\n") == 1


@pytest.mark.parametrize("way", CAUSAL)
def test_a_causal_mask_is_fine(way: str) -> None:
    assert count(HEAD + "        " + CAUSAL[way] + "\n") == 0


NEXT = """
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 6)
        self.head = nn.Linear(width, words)
    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))
model = Model(1000, 64)
for ids in batches:
    logits = model({inputs})
    loss = F.cross_entropy(logits.reshape(-1, 1000), {target}.reshape(-1))
    loss.backward()
"""


def test_layers_without_a_mask_that_learn_the_next_token_are_reported() -> None:
    assert count(NEXT.format(inputs="ids[:, :-1]", target="ids[:, 1:]")) == 1
    assert count(NEXT.format(inputs="ids", target="labels")) == 0
