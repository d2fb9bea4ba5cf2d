"""The names in an adapter file, as peft writes them: base_model.model.MODULE.lora_A.weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from truetune.checkpoint.safetensors import Tensor

PREFIX = "base_model.model."
LAYER = "base_layer"
ADDED = ("token_adapter", "trainable_tokens_delta", "modules_to_save", LAYER)
"""Parts of names that peft puts between a module and its tensors"""
PAIRS = (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B"))


class Piece(NamedTuple):
    """One tensor of an adapter."""

    module: str
    """Of the base, without PREFIX: `model.layers.0.self_attn.q_proj`"""
    part: str
    """`lora_A`, `lora_magnitude_vector`, ...; empty for a whole tensor (`modules_to_save`)"""
    rest: str
    """What follows: `weight`"""
    tensor: Tensor

    @property
    def whole(self) -> str:
        """The name of the base's tensor that this one replaces"""
        return f"{self.module}.{self.rest}"


def piece(tensor: Tensor) -> Piece:
    """Take a name apart."""
    names = tensor.name.removeprefix(PREFIX).split(".")
    at = next((i for i, name in enumerate(names) if name.startswith("lora_")), None)
    if at is None:
        names = [name for name in names[:-1] if name not in ADDED[2:]] + names[-1:]
        delta = next((i for i, name in enumerate(names) if name in ADDED), None)
        if delta is not None:
            return Piece(".".join(names[:delta]), names[-1], "", tensor)
        return Piece(".".join(names[:-1]), "", names[-1], tensor)
    module = [name for name in names[:at] if name != LAYER]
    return Piece(".".join(module), names[at], ".".join(names[at + 1 :]), tensor)


def pieces(tensors: Mapping[str, Tensor]) -> list[Piece]:
    """All tensors of an adapter, taken apart."""
    return [piece(tensor) for tensor in tensors.values()]


def low_rank(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Module -> part (`lora_A`) -> its weight."""
    found: dict[str, dict[str, Tensor]] = {}
    for name in pieces(tensors):
        if name.part and not name.rest.endswith("bias"):
            found.setdefault(name.module, {})[name.part] = name.tensor
    return {
        module: parts
        for module, parts in found.items()
        if any(a in parts or b in parts for a, b in PAIRS)
    }


def saved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that replace whole tensors of the base, by the base's name."""
    return {
        p.whole: p.tensor
        for p in pieces(tensors)
        if not p.part and LAYER not in p.tensor.name.split(".")
    }


def modules(names: Iterable[str]) -> set[str]:
    """Every module that has a tensor, and those that hold them."""
    found: set[str] = set()
    for name in names:
        module = name.rpartition(".")[0]
        while module and module not in found:
            found.add(module)
            module = module.rpartition(".")[0]
    return found


def ends_with(module: str, target: str) -> bool:
    """Does an entry of target_modules mean this module? As in peft, it is the name or the end of it."""
    return module == target or module.endswith(f".{target}")
