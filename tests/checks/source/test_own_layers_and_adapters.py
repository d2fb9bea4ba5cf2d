"""Layers that are no part of their module, adapters that start wrong, and both as they should be."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import math
import torch
import torch.nn as nn
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
    def forward(self, x):
        return self.inner(x)
"""
MODEL = """
class Model(nn.Module):
    def __init__(self, width=8, r=4):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
"""
LOST = {
    "list": (
        "self.heads = [nn.Linear(width, 1) for _ in range(4)]",
        "return [h(x) for h in self.heads]",
    ),
    "written list": ("self.heads = [nn.Linear(8, 1), nn.Linear(8, 1)]", "return self.heads[0](x)"),
    "dictionary": ("self.heads = {'a': nn.Linear(8, 1)}", "return self.heads['a'](x)"),
    "one layer": ("self.head = [nn.Linear(8, 1)]", "return self.head[0](x)"),
    "two without gradients": (
        "self.heads = [nn.Linear(8, 1), nn.Linear(8, 1)]",
        "with torch.no_grad():\n            return self.heads[0](x)",
    ),
    "own layers": ("self.blocks = [Block(width) for _ in range(2)]", "return self.blocks[0](x)"),
    "made in forward": ("pass", "return nn.Linear(8, 1)(x)"),
}
KEPT = {
    "module list": ("self.heads = nn.ModuleList([nn.Linear(8, 1)])", "return self.heads[0](x)"),
    "wrapped later": (
        "self.heads = [nn.Linear(8, 1)]\n        self.all = nn.ModuleList(self.heads)",
        "return x",
    ),
    "sequence": (
        "layers = [nn.Linear(8, 1)]\n        self.net = nn.Sequential(*layers)",
        "return self.net(x)",
    ),
    "functions": ("self.acts = [nn.ReLU(), nn.Tanh()]", "return self.acts[0](x)"),
    "added": (
        "self.heads = [nn.Linear(8, 1)]\n        self.add_module('h', self.heads[0])",
        "return x",
    ),
    "given": (
        "self.heads = [nn.Linear(8, 1)]",
        "return x\n    def trainable_params(self):\n        return [h.weight for h in self.heads]",
    ),
    "teacher": (
        "self.teacher = [Block(width)]",
        "with torch.no_grad():\n            return self.teacher[0](x)",
    ),
    "norm without weights": ("pass", "return nn.LayerNorm(8, elementwise_affine=False)(x)"),
    "in a loop": (
        "self.heads = [nn.Linear(8, 1)]",
        "return x\nmodel = Model()\nown = list(model.parameters())\nfor head in model.heads:\n"
        "    own += list(head.parameters())",
    ),
    "sizes": ("self.sizes = [1, 2]", "return x"),
}
ADAPTER = """
class LoRALinear(nn.Module):
    def __init__(self, linear, r=4):
        super().__init__()
        self.linear = linear
        {init}
"""
ZERO = "nn.Parameter(torch.zeros(4, 8))"
RANDOM = "nn.Parameter(torch.randn(4, 8))"
EMPTY = "nn.Parameter(torch.empty(4, 8))"
ALIKE = {
    "zeros": f"self.lora_A = {ZERO}\n        self.lora_B = {ZERO}",
    "random": f"self.lora_A = {RANDOM}\n        self.lora_B = {RANDOM}",
    "layers": "self.lora_A = nn.Linear(8, 4, bias=False)\n        self.lora_B = nn.Linear(4, 8, bias=False)",
    "set to zero": f"self.A = {EMPTY}\n        self.B = {EMPTY}\n        nn.init.zeros_(self.A)\n"
    f"        nn.init.zeros_(self.B)",
}
UNLIKE = {
    "usual": f"self.lora_A = {RANDOM}\n        self.lora_B = {ZERO}",
    "other way round": f"self.lora_A = {ZERO}\n        self.lora_B = {RANDOM}",
    "layers": "self.lora_A = nn.Linear(8, 4, bias=False)\n        self.lora_B = nn.Linear(4, 8, bias=False)\n"
    "        nn.init.zeros_(self.lora_B.weight)",
    "initialized": f"self.A = {EMPTY}\n        self.B = {EMPTY}\n"
    f"        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))\n"
    "        nn.init.zeros_(self.B)",
    "one matrix": f"self.lora_A = {ZERO}",
    "weight set": "self.down = nn.Linear(8, 4)\n        self.up = nn.Linear(4, 8)\n"
    f"        self.up.weight = {ZERO}",
    "data set": "self.down = nn.Linear(8, 4)\n        self.up = nn.Linear(4, 8)\n"
    "        self.up.weight.data = torch.zeros_like(self.up.weight)",
    "by a loop": "self.lora_A = nn.Linear(8, 4)\n        self.lora_B = nn.Linear(4, 8)\n"
    "        for name, p in self.named_parameters():\n            if 'lora_B' in name:\n"
    "                nn.init.zeros_(p)",
    "frozen": "self.lora_A = nn.Parameter(torch.randn(4, 8), requires_grad=False)\n"
    "        self.lora_B = nn.Parameter(torch.randn(8, 4), requires_grad=False)\n"
    "        self.d = nn.Parameter(torch.ones(4))",
    "gate": f"self.lora_A = {RANDOM}\n        self.lora_B = {RANDOM}\n"
    "        self.gate = nn.Parameter(torch.zeros(1))",
    "taken off": f"self.lora_A = {RANDOM}\n        self.lora_B = {RANDOM}\n"
    "        self.linear.weight.data -= self.lora_B.data @ self.lora_A.data",
}


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "model.py"), find_rule(rule)).findings)


@pytest.mark.parametrize("way", LOST)
def test_layers_that_are_no_part_of_their_module_are_reported(way: str) -> None:
    init, forward = LOST[way]
    assert count("layers-not-registered", HEAD + MODEL.format(init=init, forward=forward)) == 1


@pytest.mark.parametrize("way", KEPT)
def test_registered_layers_are_fine(way: str) -> None:
    init, forward = KEPT[way]
    assert count("layers-not-registered", HEAD + MODEL.format(init=init, forward=forward)) == 0


@pytest.mark.parametrize("way", ALIKE)
def test_two_matrices_that_start_alike_are_reported(way: str) -> None:
    assert count("own-adapter-starts-wrong", HEAD + ADAPTER.format(init=ALIKE[way])) == 1


@pytest.mark.parametrize("way", UNLIKE)
def test_one_random_and_one_zero_matrix_are_fine(way: str) -> None:
    assert count("own-adapter-starts-wrong", HEAD + ADAPTER.format(init=UNLIKE[way])) == 0


def test_a_bias_of_zeros_is_no_gate() -> None:
    text = ADAPTER.format(
        init=ALIKE["random"] + "\n        self.bias = nn.Parameter(torch.zeros(8))"
    )
    assert count("own-adapter-starts-wrong", HEAD + text) == 1


def test_zeros_that_a_trained_adapter_replaces_are_fine() -> None:
    text = HEAD + ADAPTER.format(init=ALIKE["zeros"])
    loaded = text + "wrap(model).load_state_dict(torch.load('adapter.pt'), strict=False)\n"
    assert count("own-adapter-starts-wrong", loaded) == 0
    assert count("own-adapter-starts-wrong", loaded + "loss.backward()\n") == 1


def test_layers_of_low_rank_from_scratch_are_fine() -> None:
    text = ADAPTER.replace("LoRALinear", "LowRankProjection").format(init=ALIKE["layers"])
    assert count("own-adapter-starts-wrong", HEAD + text) == 0
