"""How far each tensor has moved from the base: a sample of both, value by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.bits import PLAIN, floats
from truetune.checkpoint.safetensors import Tensor

STRETCH = 8192
"""Values that are compared at one place"""
STRETCHES = 32
"""Places in one tensor, spread evenly"""
BUDGET = 1 << 30
"""Values in all"""


class Moved(NamedTuple):
    """One tensor against the base's tensor of that name and shape."""

    seen: int
    """Values that were compared"""
    same: int
    """Those that are equal"""
    change: float
    """Root mean square of the difference over that of the base"""
    cosine: float
    """Between both, as vectors; 1 where both are zero"""


def moved(
    tensors: Mapping[str, Tensor], base: Mapping[str, Tensor], *, budget: int = BUDGET
) -> dict[str, Moved]:
    """The tensors that both have in the same shape, as far as they are plain numbers."""
    pairs = {
        name: (tensor, base[name])
        for name, tensor in tensors.items()
        if name in base
        and tensor.shape == base[name].shape
        and tensor.items
        and _readable(tensor, base[name])
    }
    places = max(1, min(STRETCHES, budget // STRETCH // max(1, len(pairs))))
    return {name: compare(a, b, places) for name, (a, b) in pairs.items()}


def compare(tensor: Tensor, base: Tensor, places: int = STRETCHES) -> Moved:
    """Compare two tensors of the same shape."""
    a, b = sample(tensor, places), sample(base, places)
    with np.errstate(over="ignore", invalid="ignore"):
        difference = float(np.square(a - b, dtype=np.float64).sum())
        aa, bb = (float(np.square(x, dtype=np.float64).sum()) for x in (a, b))
        dot = float(np.dot(a.astype(np.float64), b.astype(np.float64)))
        change = np.sqrt(difference / bb) if bb else float(difference > 0)
        cosine = dot / np.sqrt(aa * bb) if aa and bb else float(aa == bb)
    return Moved(len(a), int((a == b).sum()), float(change), float(cosine))


def sample(tensor: Tensor, places: int = STRETCHES) -> NDArray[np.float32]:
    """Stretches of values, spread evenly; all of a small tensor."""
    values = mapped(tensor).reshape(-1)
    if len(values) <= places * STRETCH:
        return floats(values, tensor.dtype)
    starts = np.linspace(0, len(values) - STRETCH, places).astype(np.int64)
    return floats(
        np.concatenate([values[start : start + STRETCH] for start in starts]), tensor.dtype
    )


def mapped(tensor: Tensor) -> NDArray[np.generic]:
    """A tensor as it is on disk; bfloat16 as its 16 bits."""
    return np.memmap(
        tensor.file, PLAIN[tensor.dtype], mode="r", offset=tensor.start, shape=tensor.shape or (1,)
    )


def _readable(*tensors: Tensor) -> bool:
    return all(tensor.whole and tensor.dtype in PLAIN for tensor in tensors)
