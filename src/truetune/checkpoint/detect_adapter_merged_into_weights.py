"""Detects that an adapter was merged into a model, and into what: full weights, or a base that was
rounded to 4 bits.

The trade-off: signs in the values, for a merged model's files do not say what they are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.compare_tensor_samples import SampledChange, map_tensor_into_memory
from truetune.checkpoint.find_input_embedding_and_output_head import EMBEDDING_NAMES, HEAD_NAMES
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32

BLOCK_VALUES, CODES_OF_4_BIT = 64, 16
"""Values that share a scale in 4-bit formats, and the values that there are"""
# Chosen, not measured: 4,096 values; a matrix that was never in 4 bits shows it in the first blocks.
MAX_BLOCKS = 64
"""Blocks that are looked at in one matrix"""
MAX_CHANGE_BLOCKS = 4096
"""Blocks of a difference that are looked at"""


def is_merge(moved: Mapping[str, SampledChange]) -> bool:
    """Does a model look like a merge: do only matrices inside the layers differ from the base,
    while the embedding and all norms are as they were?
    """
    # An adapter goes on the linear layers; full training moves norms and embeddings as well.
    changed = {name for name, m in moved.items() if m.same < m.seen}
    whole = (*EMBEDDING_NAMES, *HEAD_NAMES, "norm.weight", "layernorm.weight", ".bias")
    return (
        bool(changed)
        and len(changed) < len(moved)
        and not any(name.endswith(whole) for name in changed)
    )


def find_matrices_of_4_bit_values(tensors: Mapping[str, StoredTensor]) -> Iterator[str]:
    """Matrices with at most 16 different values in (nearly) each block of 64."""
    for name, tensor in tensors.items():
        fits = (
            len(tensor.shape) == 2
            and tensor.value_count >= BLOCK_VALUES * CODES_OF_4_BIT
            and tensor.dtype in NUMPY_TYPES
            and tensor.whole
        )
        if fits and name.endswith("_proj.weight"):
            values = np.sort(_sample_blocks_of_64(tensor, MAX_BLOCKS), axis=1)
            distinct = 1 + (values[:, 1:] != values[:, :-1]).sum(axis=1)
            # More than 4, for a block of zeros or of a pruned matrix has few values, too.
            if ((distinct > 4) & (distinct <= CODES_OF_4_BIT)).mean() > 0.95:
                yield name


def change_at_block_peaks(checkpoint: Checkpoint, name: str) -> float:
    """How far the largest value of each block of 64 has moved from the base's, as a share of what all have (squares).

    About 1 for any training. Near 0 where the base was rounded to 4 bits: a block's largest value is its scale, and
    stays (Dettmers et al. 2023, arXiv 2305.14314, section 2).
    """
    assert checkpoint.base is not None
    values = _sample_blocks_of_64(checkpoint.tensors[name], MAX_CHANGE_BLOCKS)
    base_values = _sample_blocks_of_64(checkpoint.base.tensors[name], MAX_CHANGE_BLOCKS)
    moved = np.square(values - base_values, dtype=np.float64)
    top = np.take_along_axis(moved, np.abs(base_values).argmax(axis=1)[:, None], axis=1)
    return float(top.mean() / moved.mean()) if moved.mean() > 0 else 1.0


def _sample_blocks_of_64(tensor: StoredTensor, most: int) -> NDArray[np.float32]:
    """Some blocks of 64 values of a tensor, (blocks, 64), spread evenly."""
    # What is left at the end is no block.
    count = tensor.value_count // BLOCK_VALUES
    rows = np.unique(np.linspace(0, count - 1, num=min(most, count)).astype(np.int64))
    return to_float32(
        map_tensor_into_memory(tensor)
        .reshape(-1)[: count * BLOCK_VALUES]
        .reshape(count, BLOCK_VALUES)[rows],
        tensor.dtype,
    )
