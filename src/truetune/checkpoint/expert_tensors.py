"""Finds the tensors of experts and routers in a model's files, whatever the family calls them.

Files hold experts one by one (`experts.3.w1.weight`) or all in one tensor (`experts.gate_up_proj`); the part `experts`
in a name tells both. A router is a matrix with a row for each expert, under one of a few names. The trade-off: experts
of families that use other words (`block_sparse_moe.input_linear`) are not found, and rules say nothing on them then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor

COUNT_SETTINGS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Settings of config.json with the number of experts of a layer"""
SINGLE_EXPERT = re.compile(r"^(?P<layer>.*\.experts)\.(?P<expert>\d+)\.(?P<rest>.+)$")
ALL_EXPERTS = re.compile(r"^(?P<layer>.*\.experts)\.(?P<rest>(?!\d)[\w.]+)$")
ROUTER = re.compile(
    r"(?:^|\.)(?P<place>(?:mlp|block_sparse_moe|feed_forward|mixer|moe)\.(?:gate|router)(?:\.(?:wg|layer|classifier|gate))?)"
    r"\.(?P<rest>weight|qweight)$"
)
"""The score of each expert: `mlp.gate.weight`, `block_sparse_moe.gate.weight`, `mlp.router.weight`"""


@dataclass
class ExpertLayer:
    """The tensors of the experts of one layer."""

    numbers: set[int] = field(default_factory=set)
    """Of experts that are stored one by one"""
    single: dict[str, dict[int, StoredTensor]] = field(default_factory=dict)
    """What follows the number -> expert -> its tensor"""
    whole: dict[str, StoredTensor] = field(default_factory=dict)
    """Tensors of all experts, by what follows `experts`"""

    def stored_counts(self) -> set[int]:
        """How many experts the tensors are of."""
        counts = {len(self.numbers)} if self.numbers else set()
        return counts | {
            tensor.shape[0] for tensor in self.whole.values() if len(tensor.shape) == 3
        }


@dataclass(frozen=True, slots=True)
class ExpertTensors:
    """The tensors of experts and routers of a model."""

    layers: Mapping[str, ExpertLayer]
    """By the name of the module of experts: `model.layers.0.mlp.experts`"""
    routers: Mapping[str, StoredTensor]
    """By their names"""


def find_expert_tensors(tensors: Mapping[str, StoredTensor]) -> ExpertTensors:
    """The tensors of experts and routers, by their names."""
    layers: dict[str, ExpertLayer] = {}
    for name, tensor in tensors.items():
        single, whole = SINGLE_EXPERT.match(name), ALL_EXPERTS.match(name)
        if single is not None:
            layer = layers.setdefault(single["layer"], ExpertLayer())
            number = int(single["expert"])
            layer.numbers.add(number)
            layer.single.setdefault(single["rest"], {})[number] = tensor
        elif whole is not None:
            layers.setdefault(whole["layer"], ExpertLayer()).whole[whole["rest"]] = tensor
    return ExpertTensors(layers, {name: t for name, t in tensors.items() if ROUTER.search(name)})


def configured_expert_count(config: Mapping[str, Any]) -> tuple[str, int] | None:
    """The setting with the number of experts, and the number; None where config.json names none, or one."""
    inner = config.get("text_config")
    for part in (inner, config) if isinstance(inner, Mapping) else (config,):
        for name in COUNT_SETTINGS:
            value = part.get(name)
            if type(value) is int and value > 1:
                return name, value
    return None
