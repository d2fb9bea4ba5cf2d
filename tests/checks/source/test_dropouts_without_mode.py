"""Dropout that `eval()` can't switch off, and dropout that follows the mode."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention
class Attention(nn.Module):
    def __init__(self, config, dropout=0.1):
        super().__init__()
        self.p = dropout
        self.config = config
        self.drop = nn.Dropout(dropout)
    def forward(self, q, k, v):
"""
ON = {
    "rate of the object": "return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)",
    "rate of the layer": "return scaled_dot_product_attention(q, k, v, dropout_p=self.drop.p, is_causal=True)",
    "rate of the settings": "return F.scaled_dot_product_attention(q, k, v, None, self.config.attn_pdrop)",
    "written": "return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)",
    "by a name": "p = self.p\n        return F.scaled_dot_product_attention(q, k, v, dropout_p=p)",
    "function": "return F.dropout(q, p=0.3)",
    "function, on": "return torch.nn.functional.dropout(q, self.p, True)",
    "new layer": "return nn.Dropout(self.p)(q)",
}
OFF = {
    "mode": "return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)",
    "mode by a name": "p = 0.0 if not self.training else self.p\n"
    "        return F.scaled_dot_product_attention(q, k, v, dropout_p=p)",
    "branch": "if self.training:\n            return F.dropout(q, 0.3)\n        return q",
    "product": "return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p * self.training)",
    "zero": "return F.scaled_dot_product_attention(q, k, v, dropout_p=0.0)",
    "none": "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "function with mode": "return F.dropout(q, p=0.3, training=self.training)",
    "layer": "return self.drop(q)",
    "early return": "if not self.training:\n            return q\n        return F.dropout(q, 0.1)",
}
GIVEN = """
import torch.nn.functional as F
def attend(q, k, v, dropout_p=0.0):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p)
"""


def count(text: str) -> int:
    rule = find_rule("dropout-left-on-in-evaluation")
    return len(run_rule(parse_module(text, "model.py"), rule).findings)


@pytest.mark.parametrize("way", ON)
def test_dropout_without_a_mode_is_reported(way: str) -> None:
    assert count(HEAD + "        " + ON[way] + "\n") == 1


@pytest.mark.parametrize("way", OFF)
def test_dropout_that_follows_the_mode_is_fine(way: str) -> None:
    assert count(HEAD + "        " + OFF[way] + "\n") == 0


def test_a_rate_that_the_caller_gives_is_left_to_the_caller() -> None:
    assert count(GIVEN) == 0


def test_a_default_of_zero_that_nothing_changes_is_fine() -> None:
    assert count((HEAD + "        " + ON["rate of the object"]).replace("=0.1", "=0.0")) == 0


def test_a_rate_that_eval_sets_is_fine() -> None:
    text = HEAD + "        " + ON["rate of the object"] + "\n    def train(self, mode=True):\n"
    text += "        self.p = 0.1 if mode else 0.0\n        return super().train(mode)\n"
    assert count(text) == 0


@pytest.mark.parametrize(("mark", "read"), [("@property", "self.rate"), ("", "self.rate()")])
def test_a_rate_that_a_method_gives_by_the_mode_is_fine(mark: str, read: str) -> None:
    text = HEAD + "        return F.scaled_dot_product_attention(q, k, v, dropout_p=" + read + ")\n"
    method = f"    {mark}\n    def rate(self):\n        return self.p if self.training else 0.0\n"
    assert count(text + method) == 0
    assert count(text + method.replace(" if self.training else 0.0", "")) == 1


def test_what_training_steps_alone_call_is_fine() -> None:
    text = HEAD + "        return q\n    def augment(self, x):\n        return F.dropout(x, 0.1)\n"
    step = "    def training_step(self, batch, index):\n        return self(self.augment(batch))\n"
    assert count(text + step) == 0
    assert count(text + step + step.replace("training", "validation")) == 1


def test_sampling_by_dropout_is_meant() -> None:
    assert count("# MC dropout\n" + HEAD + "        " + ON["function"]) == 0
