"""Computes what an adapter on the parameters of experts makes of them (`target_parameters` of peft), expert by expert.

peft puts one pair of factors on the parameter of all E experts of a layer: A (E r, in) and B (out, r E). The experts
are the slow axis of A and the fast one of B, so that expert e has A[e r : (e+1) r] and B[:, e :: E]. Two parameters of
one module are wrapped into each other; the names say only how deep (`base_layer`), and which one it is follows from the
shapes. Files hold the experts as one tensor or one by one; both are handled.

The trade-off: where two parameters have the same shape, or a square one could lie either way, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.adapter_tensor_names import BASE_LAYER, AdapterTensor
from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import to_float32

Floats = NDArray[np.float32]
MODULE_ENDING = "experts"
"""The last part of the name of a module that holds the experts of a layer"""
BLOCK_NAMES = ("mlp", "block_sparse_moe", "feed_forward", "mixer")
"""What the module around the experts is called, in memory or in files: Mixtral's differs"""
FILE_NAMES = {"gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")), "down_proj": (("down_proj",), ("w2",)),
              "up_proj": (("up_proj",),)}  # fmt: skip
"""Parameter of all experts -> what files call its parts, expert by expert"""


@dataclass(frozen=True, slots=True)
class ExpertPair:
    """One pair of factors on a parameter of all experts of a layer."""

    module: str
    """`model.layers.0.mlp.experts`"""
    a: StoredTensor
    b: StoredTensor


@dataclass(frozen=True)
class ExpertFactors:
    """The factors of one parameter, as the experts use them."""

    pair: ExpertPair
    experts: int
    scale: float

    @cached_property
    def by_expert(self) -> tuple[Floats, Floats]:
        """(E, out, r) and (E, r, in)."""
        a, b = (
            to_float32(map_tensor_into_memory(tensor), tensor.dtype)
            for tensor in (self.pair.a, self.pair.b)
        )
        left = b.reshape(b.shape[0], -1, self.experts).transpose(2, 0, 1)
        return left, a.reshape(self.experts, -1, a.shape[1])

    def change_of_expert(self, expert: int) -> Floats:
        """The change of one expert (out, in)."""
        left, right = self.by_expert
        return np.asarray(np.float32(self.scale) * (left[expert] @ right[expert]), np.float32)


def find_expert_pairs(parsed: list[AdapterTensor], config: Mapping[str, Any]) -> list[ExpertPair]:
    """The pairs of factors on parameters of experts; empty without `target_parameters` in adapter_config.json."""
    if not config.get("target_parameters"):
        return []
    factors: dict[tuple[str, int], dict[str, StoredTensor]] = {}
    for one in parsed:
        if one.module.rpartition(".")[2] != MODULE_ENDING or one.part not in ("lora_A", "lora_B"):
            continue
        depth = one.tensor.name.split(".").count(BASE_LAYER)
        factors.setdefault((one.module, depth), {})[one.part] = one.tensor
    return [
        ExpertPair(module, parts["lora_A"], parts["lora_B"])
        for (module, _), parts in factors.items()
        if {"lora_A", "lora_B"} <= parts.keys() and _are_factors(parts["lora_A"], parts["lora_B"])
    ]


def _are_factors(a: StoredTensor, b: StoredTensor) -> bool:
    """Are these the two factors of one parameter?"""
    return len(a.shape) == 2 and len(b.shape) == 2 and a.shape[0] == b.shape[1]


@dataclass(frozen=True, slots=True)
class ExpertTensor:
    """A tensor of the base that a pair of factors changes."""

    parameter: str
    """`gate_up_proj`"""
    tensor: StoredTensor
    experts: int
    expert: int | None
    """Which expert it is; None where it holds all of them"""
    first_row: int
    """Of the change of an expert: an `up_proj` begins behind the `gate_proj`"""
    is_turned: bool
    """It is stored as (in, out)"""


def tensors_changed_by_pair(
    pair: ExpertPair, names: list[str], base: Mapping[str, StoredTensor]
) -> list[ExpertTensor]:
    """The tensors of the base that a pair changes; empty where it can't be told.

    Args:
        pair: of the adapter.
        names: of the parameters of experts in target_parameters: `mlp.experts.gate_up_proj`.
        base: its tensors by name.
    """
    matches = [
        tensors
        for name in sorted({name.rpartition(".")[2] for name in names})
        if (tensors := _tensors_of_parameter(pair, name, base))
    ]
    return matches[0] if len(matches) == 1 else []


def _tensors_of_parameter(
    pair: ExpertPair, parameter: str, base: Mapping[str, StoredTensor]
) -> list[ExpertTensor]:
    """The tensors of one parameter, if the pair's shapes fit them in one way alone."""
    for module in _module_names_in_files(pair.module):
        whole = base.get(f"{module}.{parameter}")
        if whole is not None and len(whole.shape) == 3:
            return _whole_tensor_if_fitting(pair, parameter, whole)
        for parts in FILE_NAMES.get(parameter, ()):
            if f"{module}.0.{parts[0]}.weight" in base:
                return _single_tensors_if_fitting(pair, parameter, module, parts, base)
    return []


def _module_names_in_files(module: str) -> Iterator[str]:
    """What the module of the experts may be called in files: itself first."""
    yield module
    before, _, _ = module.rpartition(f".{MODULE_ENDING}")
    layer, _, block = before.rpartition(".")
    yield from (f"{layer}.{name}.{MODULE_ENDING}" for name in BLOCK_NAMES if name != block)


def _whole_tensor_if_fitting(
    pair: ExpertPair, parameter: str, whole: StoredTensor
) -> list[ExpertTensor]:
    """The tensor of all experts, if the pair fits it."""
    experts, rows, columns = whole.shape
    if rows == columns or pair.a.shape[0] % experts:
        return []
    sizes = (pair.b.shape[0], pair.a.shape[1])
    if sizes not in ((rows, columns), (columns, rows)):
        return []
    return [ExpertTensor(parameter, whole, experts, None, 0, sizes == (columns, rows))]


def _single_tensors_if_fitting(
    pair: ExpertPair,
    parameter: str,
    module: str,
    parts: tuple[str, ...],
    base: Mapping[str, StoredTensor],
) -> list[ExpertTensor]:
    """The tensors of single experts, if the pair fits them."""
    experts = 0
    while f"{module}.{experts}.{parts[0]}.weight" in base:
        experts += 1
    changed_tensors, first_row = [], 0
    for part in parts:
        tensors = [base.get(f"{module}.{expert}.{part}.weight") for expert in range(experts)]
        rows = next((tensor.shape[0] for tensor in tensors if tensor is not None), 0)
        for expert, tensor in enumerate(tensors):
            if tensor is None or len(tensor.shape) != 2 or tensor.shape[1] != pair.a.shape[1]:
                return []
            changed_tensors.append(
                ExpertTensor(parameter, tensor, experts, expert, first_row, False)
            )
        first_row += rows
    fits = first_row == pair.b.shape[0] and pair.a.shape[0] % experts == 0
    return changed_tensors if fits else []
