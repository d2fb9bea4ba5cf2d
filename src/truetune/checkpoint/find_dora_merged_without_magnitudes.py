"""Finds tensors into which a DoRA adapter was merged as if it was plain LoRA.

DoRA gives each row of the merged matrix a learned length (`lora_magnitude_vector`; Liu et al. 2024, arXiv 2402.09353).
A script that knows `lora_A` and `lora_B` alone adds their product and leaves the lengths out. Both results are computed
for some rows, and the model is nearer to one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checkpoint.adapter_delta import LowRankDelta, adapter_deltas_and_uncomputed_tensors
from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.summarise_floats_by_bits import to_float32

SAMPLED_ROWS = 64
"""Of each tensor, as for merges (`find_merged_adapter_beside`)"""
MAX_SHARE_OF_DISTANCE = 0.5
"""Of the distance to the right merge. Chosen, not measured: rounding gives both the same part, and where the lengths
were kept the distance to the plain product is the larger one"""


def tensors_merged_without_magnitudes(
    model: Checkpoint, adapter: Checkpoint, base: Checkpoint
) -> tuple[list[str], int]:
    """Names of the tensors that are the base plus the plain product, and how many have learned lengths."""
    names, total = [], 0
    for name, delta in _deltas_with_magnitude(adapter, base):
        own = model.tensors.get(name)
        if own is None or delta.base is None or own.shape != delta.shape or not own.whole:
            continue
        total += 1
        stop = min(SAMPLED_ROWS, own.shape[0])
        before = to_float32(map_tensor_into_memory(delta.base)[:stop], delta.base.dtype)
        after = to_float32(map_tensor_into_memory(own)[:stop], own.dtype)
        to_right_merge = float(np.square(after - delta.rows(0, stop, before)).sum())
        plain = before + delta.change_of_rows(0, stop)
        to_plain_product = float(np.square(after - plain).sum())
        if to_plain_product < MAX_SHARE_OF_DISTANCE**2 * to_right_merge:
            names.append(name)
    return names, total


def _deltas_with_magnitude(
    adapter: Checkpoint, base: Checkpoint
) -> Iterator[tuple[str, LowRankDelta]]:
    """The changes of an adapter that give rows a learned length, by the base's tensor."""
    deltas, _ = adapter_deltas_and_uncomputed_tensors(adapter, base.tensors)
    for name, delta in deltas.items():
        if isinstance(delta, LowRankDelta) and delta.magnitude is not None:
            yield name, delta
