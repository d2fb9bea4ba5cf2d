"""Signs that an adapter was merged into a model, and into what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from truetune.checkpoint.bits import PLAIN, floats
from truetune.checkpoint.checkpoint import Checkpoint
from truetune.checkpoint.compare import Moved, mapped
from truetune.checkpoint.embedding import EMBEDDINGS, HEADS
from truetune.checkpoint.safetensors import Tensor

BLOCK, CODES = 64, 16
"""Values that share a scale in 4-bit formats, and the values that there are"""
BLOCKS = 64
"""Blocks that are looked at in one matrix"""
SIDE, SMALLEST = 512, 128
"""Rows and columns of a difference whose directions are looked at"""


def is_merge(moved: Mapping[str, Moved]) -> bool:
    """Do only matrices inside the layers differ from the base, while the embedding and all norms are as they were?"""
    changed = {name for name, m in moved.items() if m.same < m.seen}
    whole = (*EMBEDDINGS, *HEADS, "norm.weight", "layernorm.weight", ".bias")
    return bool(changed) and len(changed) < len(moved) and not any(name.endswith(whole) for name in changed)


def four_bit(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Matrices with at most 16 different values in (nearly) each block of 64."""
    for name, tensor in tensors.items():
        fits = len(tensor.shape) == 2 and tensor.items >= BLOCK * CODES and tensor.dtype in PLAIN and tensor.whole
        if fits and name.endswith("_proj.weight"):
            count = tensor.items // BLOCK
            rows = np.unique(np.linspace(0, count - 1, num=min(BLOCKS, count)).astype(np.int64))
            values = np.sort(mapped(tensor).reshape(-1)[: count * BLOCK].reshape(count, BLOCK)[rows], axis=1)
            distinct = 1 + (values[:, 1:] != values[:, :-1]).sum(axis=1)
            if ((distinct > 4) & (distinct <= CODES)).mean() > 0.95:
                yield name


def spread(found: Checkpoint, name: str) -> float | None:
    """The share of the difference from the base that the largest eighth of its directions holds, by squares.

    Near 1 for an adapter, below 0.5 for noise; None where the matrix is too small to tell.
    """
    if found.base is None or len(found.tensors[name].shape) != 2 or min(found.tensors[name].shape) < SMALLEST:
        return None
    mine, theirs = (floats(mapped(t)[:SIDE, :SIDE], t.dtype) for t in (found.tensors[name], found.base.tensors[name]))
    values = np.square(np.linalg.svd((mine - theirs).astype(np.float64), compute_uv=False))
    total = float(values.sum())
    return float(values[: len(values) // 8].sum()) / total if np.isfinite(total) and total > 0 else None
