"""What an adapter makes of each tensor of its base, computed from the files alone, in rows.

W' = W + s B A with s = alpha / r, or alpha / sqrt(r) with rsLoRA (Hu et al. 2021, arXiv 2106.09685; Kalajdzievski 2023,
arXiv 2312.03732); DoRA scales each row of W' to a learned length (Liu et al. 2024, arXiv 2402.09353).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.adapter import ADDED, LAYER, PAIRS, low_rank, piece, pieces, saved
from truetune.checkpoint.bits import PLAIN, floats
from truetune.checkpoint.compare import mapped
from truetune.checkpoint.embedding import HEADS, embedding
from truetune.checkpoint.safetensors import Tensor

if TYPE_CHECKING:
    from truetune.checkpoint.checkpoint import Checkpoint

Floats = NDArray[np.float32]
ORIGINAL = ".original_module."
"""In the names of copies that peft keeps of what `modules_to_save` replaces"""


@dataclass(frozen=True)
class Delta:
    """What the adapter does to one tensor of the base."""

    name: str
    """Of the base's tensor"""
    base: Tensor | None
    """What it starts from; None where the base is not at hand"""
    shape: tuple[int, ...]

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        """Those rows of the tensor with the adapter, float32, from the base's."""
        raise NotImplementedError


@dataclass(frozen=True)
class LowRank(Delta):
    """A product of two thin matrices, times a scale."""

    left: Tensor
    """B (rows, r), or A of an embedding (r, rows)"""
    right: Tensor
    scale: float
    turned: bool
    """The weight is stored as (in, out), or is an embedding"""
    magnitude: Tensor | None = None

    @cached_property
    def factors(self) -> tuple[Floats, Floats]:
        """(rows, r) and (r, columns)"""
        left, right = (floats(mapped(tensor), tensor.dtype) for tensor in (self.left, self.right))
        return (right.T, left.T) if self.turned else (left, right)

    def change(self, start: int, stop: int) -> Floats:
        """s B A, these rows"""
        left, right = self.factors
        return np.asarray(np.float32(self.scale) * (left[start:stop] @ right), dtype=np.float32)

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        made = base + self.change(start, stop)
        if self.magnitude is not None:
            length = floats(mapped(self.magnitude).reshape(-1)[start:stop], self.magnitude.dtype)
            made *= (length / np.linalg.norm(made, axis=1))[:, None]
        return made


@dataclass(frozen=True)
class Whole(Delta):
    """Another tensor in its place (`modules_to_save`, biases)."""

    tensor: Tensor

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        return floats(mapped(self.tensor)[start:stop], self.tensor.dtype)


@dataclass(frozen=True)
class Rows(Delta):
    """Other rows for some tokens (`trainable_token_indices`)."""

    ids: tuple[int, ...]
    tensor: Tensor

    def rows(self, start: int, stop: int, base: Floats) -> Floats:
        made = base.copy()
        values = floats(mapped(self.tensor), self.tensor.dtype)
        for id, row in zip(self.ids, values, strict=True):
            if start <= id < stop:
                made[id - start] = row
        return made


def deltas(
    adapter: Checkpoint, base: Mapping[str, Tensor] | None
) -> tuple[dict[str, Delta], list[str]]:
    """By the name of the base's tensor; and the tensors of the adapter whose effect can't be computed here."""
    found: dict[str, Delta] = {}
    done: set[str] = set()
    copies = {
        piece(t).whole: t for name, t in adapter.tensors.items() if f".{LAYER}.weight" in name
    }
    start = Start(base, copies)
    config = adapter.adapter_config
    for module, parts in low_rank(adapter.tensors).items():
        delta = _low_rank(module, parts, config, start)
        if delta is not None:
            found[delta.name] = delta
            done |= {tensor.name for tensor in parts.values()}
    replaced = {
        name: tensor for name, tensor in saved(adapter.tensors).items() if ORIGINAL not in name
    }
    for name, tensor in replaced.items():
        place, before = start(name)
        found[place] = Whole(place, before, tensor.shape, tensor)
    for part in pieces(adapter.tensors):
        if part.part in ADDED[:2] and (ids := _ids(config, part.module)) is not None:
            name, before = start(f"{part.module}.weight")
            if before is not None and len(ids) == part.tensor.shape[0]:
                found[name] = Rows(name, before, before.shape, ids, part.tensor)
                done.add(part.tensor.name)
    done |= {tensor.name for tensor in copies.values()}
    rest = [
        p
        for p in pieces(adapter.tensors)
        if p.tensor.name not in done and ORIGINAL not in p.tensor.name
    ]
    left = [p.tensor.name for p in rest if p.part or p.whole not in replaced]
    return {name: delta for name, delta in found.items() if _readable(delta)}, left


@dataclass(frozen=True)
class Start:
    """Finds the base's tensor of a name. Files of one model may differ in what stands before it, and a tied head has
    none of its own: it starts as the embedding."""

    base: Mapping[str, Tensor] | None
    copies: Mapping[str, Tensor]
    """Of base tensors, that peft saved beside the adapter"""

    @cached_property
    def shorter(self) -> dict[str, str]:
        return {name.partition(".")[2]: name for name in self.base or ()}

    def __call__(self, name: str) -> tuple[str, Tensor | None]:
        if self.base is None:
            return name, self.copies.get(name)
        short = name.partition(".")[2]
        place = next(
            (n for n in (name, short, self.shorter.get(name)) if n is not None and n in self.base),
            name,
        )
        tensor = self.copies.get(name) or self.base.get(place)
        if tensor is None and name.endswith(HEADS) and (into := embedding(self.base)) is not None:
            tensor = into.tensor
        return place, tensor


def _low_rank(
    module: str, parts: Mapping[str, Tensor], config: Mapping[str, Any], start: Start
) -> LowRank | None:
    names = next((pair for pair in PAIRS if pair[0] in parts and pair[1] in parts), None)
    if names is None or config.get("target_parameters"):
        return None
    a, b = (parts[name] for name in names)
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1]:
        return None
    turned = names == PAIRS[1] or bool(config.get("fan_in_fan_out"))
    magnitude = parts.get("lora_magnitude_vector")
    scale = scale_of(config, module, a.shape[0])
    if scale is None or (turned and magnitude is not None):
        return None
    name, before = start(f"{module}.weight")
    shape = (a.shape[1], b.shape[0]) if turned else (b.shape[0], a.shape[1])
    if before is not None and before.shape != shape:
        return None
    return LowRank(name, before, shape, b, a, scale, turned, magnitude)


def scale_of(
    config: Mapping[str, Any], module: str, rank: int, *, rslora: bool | None = None
) -> float | None:
    """The scale of one module's product, as peft computes it; None where adapter_config.json does not give it."""
    alpha = config.get("lora_alpha")
    for pattern, other in (config.get("alpha_pattern") or {}).items():
        if pattern == module or module.endswith(f".{pattern}") or _matches(pattern, module):
            alpha = other
            break
    if not isinstance(alpha, int | float) or rank < 1:
        return None
    root = bool(config.get("use_rslora")) if rslora is None else rslora
    return alpha / math.sqrt(rank) if root else alpha / rank


def _matches(pattern: str, module: str) -> bool:
    """peft takes the keys as patterns; those of names and stars alone are tried, so that none can run for ever."""
    if re.search(r"[+*}]\)?[+*{]|\)[+*{]", pattern) or len(pattern) > 200:
        return False
    try:
        return re.match(rf"(.*\.)?({pattern})$", module) is not None
    except re.error:
        return False


def _ids(config: Mapping[str, Any], module: str) -> tuple[int, ...] | None:
    chosen = config.get("trainable_token_indices")
    if isinstance(chosen, dict):
        named = [
            ids for name, ids in chosen.items() if module == name or module.endswith(f".{name}")
        ]
        tied = list(chosen.values()) if f"{module}.weight".endswith(HEADS) else []
        chosen = next(iter([*named, *tied]), None)
    if not isinstance(chosen, list) or not all(type(id) is int for id in chosen):
        return None
    return tuple(chosen)


def _readable(delta: Delta) -> bool:
    tensors = [t for t in vars(delta).values() if isinstance(t, Tensor)]
    return all(tensor.whole and tensor.dtype in PLAIN for tensor in tensors)
