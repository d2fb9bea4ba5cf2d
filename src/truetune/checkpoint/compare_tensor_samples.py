"""Compares a sample of each tensor with the base's, value by value, to say how far it moved.

The trade-off: a quarter of a million values of each tensor, in stretches, so that a model of any size is compared in
seconds; a change of a few rows may be missed, which `weight_diff` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32

# Chosen, not measured: 16 to 32 KiB at a place, so that a disk reads more than it seeks.
STRETCH_VALUES = 8192
"""Values that are compared at one place"""
# Chosen, not measured: a sample of 262,144 values; the share that moved is known to a tenth of a percent.
MAX_STRETCHES = 32
"""Places in one tensor, spread evenly"""
MAX_COMPARED_VALUES = 1 << 30
"""Values in all"""
# Chosen, not measured: 64 MiB as float32, twice.
VALUES_READ_AT_ONCE = 1 << 24
"""Values of each tensor, where all are compared"""


class SampledChange(NamedTuple):
    """How far the sampled values of a tensor are from the base's."""

    seen: int
    """Values that were compared"""
    same: int
    """Those that are equal"""
    change: float
    """Root mean square of the difference over that of the base"""
    cosine: float
    """Between both, as vectors; 1 where both are zero"""
    along_base: float
    """Product of difference and base over the square of the difference: 1 where a part of the base was added again,
    near 0 where the difference has nothing to do with it"""
    mean_difference: float
    """Mean of the tensor minus the base, value by value"""
    spread_of_difference: float
    """Standard deviation of the same: near 0 where one number was added to all values"""


def compare_sampled_tensors(
    tensors: Mapping[str, StoredTensor],
    base: Mapping[str, StoredTensor],
    *,
    budget: int = MAX_COMPARED_VALUES,
) -> dict[str, SampledChange]:
    """Compare samples of all tensors that both have in the same shape, and that are plain numbers."""
    pairs = {
        name: (tensor, base[name])
        for name, tensor in tensors.items()
        if name in base
        and tensor.shape == base[name].shape
        and tensor.value_count
        and _are_plain_numbers(tensor, base[name])
    }
    # A model of a hundred thousand tensors (experts) gets fewer places in each.
    places = max(1, min(MAX_STRETCHES, budget // STRETCH_VALUES // max(1, len(pairs))))
    return {name: compare_tensor_sample(a, b, places) for name, (a, b) in pairs.items()}


def compare_tensor_sample(
    tensor: StoredTensor, base: StoredTensor, stretches: int = MAX_STRETCHES
) -> SampledChange:
    """Compare samples of two tensors of the same shape."""
    a, b = sample_values(tensor, stretches), sample_values(base, stretches)
    # Broken weights hold NaN and infinity; they are for other rules to tell, and no reason for warnings here.
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.subtract(a, b, dtype=np.float64)
        difference = float(np.square(apart).sum())
        # Sums in float64: a quarter of a million squares in float32 lose digits.
        aa, bb = (float(np.square(x, dtype=np.float64).sum()) for x in (a, b))
        dot = float(np.dot(a.astype(np.float64), b.astype(np.float64)))
        change = np.sqrt(difference / bb) if bb else float(difference > 0)
        cosine = dot / np.sqrt(aa * bb) if aa and bb else float(aa == bb)
        along_base = (dot - bb) / difference if difference else 0.0
        mean, spread = float(apart.mean()), float(apart.std())
    return SampledChange(
        len(a), int((a == b).sum()), float(change), float(cosine), float(along_base), mean, spread
    )


def are_all_values_equal(tensor: StoredTensor, base: StoredTensor) -> bool:
    """Are two tensors of the same shape equal in every value? Reads them in stretches, up to the first difference.

    A sample does not tell it of an embedding, of which only the rows of tokens that occurred may have moved.
    """
    a, b = (map_tensor_into_memory(one).reshape(-1) for one in (tensor, base))
    return all(
        bool(
            np.array_equal(
                to_float32(a[start : start + VALUES_READ_AT_ONCE], tensor.dtype),
                to_float32(b[start : start + VALUES_READ_AT_ONCE], base.dtype),
            )
        )
        for start in range(0, len(a), VALUES_READ_AT_ONCE)
    )


def sample_values(tensor: StoredTensor, stretches: int = MAX_STRETCHES) -> NDArray[np.float32]:
    """Values of a tensor in stretches that are spread evenly; all of a small tensor."""
    # Mapped, so that only the pages of the stretches are read from the disk.
    values = map_tensor_into_memory(tensor).reshape(-1)
    if len(values) <= stretches * STRETCH_VALUES:
        return to_float32(values, tensor.dtype)
    starts = np.linspace(0, len(values) - STRETCH_VALUES, stretches).astype(np.int64)
    return to_float32(
        np.concatenate([values[start : start + STRETCH_VALUES] for start in starts]), tensor.dtype
    )


def map_tensor_into_memory(tensor: StoredTensor) -> NDArray[np.generic]:
    """A tensor as it is on disk, mapped into memory; bfloat16 as its 16 bits."""
    return np.memmap(
        tensor.file,
        NUMPY_TYPES[tensor.dtype],
        mode="r",
        offset=tensor.start,
        shape=tensor.shape or (1,),
    )


def _are_plain_numbers(*tensors: StoredTensor) -> bool:
    """Are the tensors whole, and of a dtype that is compared as plain numbers?"""
    return all(tensor.whole and tensor.dtype in NUMPY_TYPES for tensor in tensors)
