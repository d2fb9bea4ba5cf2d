"""Signs that an adapter was merged into a model, and into what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.bits import PLAIN, floats
from truetune.checkpoint.checkpoint import Checkpoint
from truetune.checkpoint.compare import Moved, mapped
from truetune.checkpoint.embedding import EMBEDDINGS, HEADS
from truetune.checkpoint.safetensors import Tensor

BLOCK, CODES = 64, 16
"""Values that share a scale in 4-bit formats, and the values that there are"""
BLOCKS = 64
"""Blocks that are looked at in one matrix"""
PLACES = 4096
"""Blocks of a difference that are looked at"""


def is_merge(moved: Mapping[str, Moved]) -> bool:
    """Do only matrices inside the layers differ from the base, while the embedding and all norms are as they were?"""
    changed = {name for name, m in moved.items() if m.same < m.seen}
    whole = (*EMBEDDINGS, *HEADS, "norm.weight", "layernorm.weight", ".bias")
    return (
        bool(changed)
        and len(changed) < len(moved)
        and not any(name.endswith(whole) for name in changed)
    )


def four_bit(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Matrices with at most 16 different values in (nearly) each block of 64."""
    for name, tensor in tensors.items():
        fits = (
            len(tensor.shape) == 2
            and tensor.items >= BLOCK * CODES
            and tensor.dtype in PLAIN
            and tensor.whole
        )
        if fits and name.endswith("_proj.weight"):
            values = np.sort(_blocks(tensor, BLOCKS), axis=1)
            distinct = 1 + (values[:, 1:] != values[:, :-1]).sum(axis=1)
            if ((distinct > 4) & (distinct <= CODES)).mean() > 0.95:
                yield name


def at_peaks(found: Checkpoint, name: str) -> float:
    """How far the largest value of each block of 64 has moved from the base's, as a share of what all have (squares).

    About 1 for any training. Near 0 where the base was rounded to 4 bits: a block's largest value is its scale, and
    stays (Dettmers et al. 2023, arXiv 2305.14314, section 2).
    """
    assert found.base is not None
    mine, theirs = (_blocks(t, PLACES) for t in (found.tensors[name], found.base.tensors[name]))
    moved = np.square(mine - theirs, dtype=np.float64)
    top = np.take_along_axis(moved, np.abs(theirs).argmax(axis=1)[:, None], axis=1)
    return float(top.mean() / moved.mean()) if moved.mean() > 0 else 1.0


def _blocks(tensor: Tensor, most: int) -> NDArray[np.float32]:
    """(blocks, 64), spread evenly"""
    count = tensor.items // BLOCK
    rows = np.unique(np.linspace(0, count - 1, num=min(most, count)).astype(np.int64))
    return floats(
        mapped(tensor).reshape(-1)[: count * BLOCK].reshape(count, BLOCK)[rows], tensor.dtype
    )
