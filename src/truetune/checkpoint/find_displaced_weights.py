"""Finds matrices that hold the base's values in another place: of another tensor, transposed, or by rows.

A conversion between two formats exchanges matrices (gate and up, two layers), transposes square ones, or reorders rows
(rotary order of queries and keys, another order of the vocabulary). Each row is still nearly one of the base, which
random or newly trained weights never are. So only tensors that are far from the base at their own place are looked at,
and each is compared with what the base has elsewhere. The trade-off: samples of rows and of values, and few tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.compare_tensor_samples import (
    SampledChange,
    map_tensor_into_memory,
    sample_values,
)
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import to_float32

MAX_OWN_COSINE = 0.8
"""To the base's tensor of the same name. A fine-tuned one has 0.9 and more, one whose rows are all exchanged about 0.
It only says where to look; small heads in rotary order keep a quarter of their rows, which is why it is not lower"""
MIN_FOUND_COSINE = 0.9
"""To what the base has elsewhere. Rows of 64 random values never come to 0.7; a fine-tuned row stays above 0.95"""
MIN_FOUND_SHARE = 0.5
"""Of the sampled rows. Chosen, not measured: rotary orders leave the first and last row of each head in place, and no
row is found elsewhere by chance"""
SAMPLED_ROWS = 32
MIN_ROWS = 8
MIN_COLUMNS = 8
"""Fewer values than this resemble each other by chance"""
MAX_TENSORS = 64
"""Displaced tensors that are looked for. Chosen: a conversion treats all layers alike"""
MAX_TENSORS_OF_ANOTHER_BASE = 8
"""Tensors in which nothing of the base is found, before one that has: then the base is another model's. Chosen, not
measured: a training from random weights, or on another base, has only such tensors, and each takes a second"""
MAX_OTHER_TENSORS = 512
"""Tensors of the base that each is compared with. Chosen, not measured: it bounds the time in models with experts"""
BLOCK_ROWS = 8192
"""Rows of the base that are read at once: 128 MB at 4,096 columns"""

Displacement = Literal["another tensor", "transposed", "rows"]


class DisplacedTensor(NamedTuple):
    """A tensor that holds the base's values in another place."""

    name: str
    how: Displacement
    other: str = ""
    """The tensor of the base whose values it has"""


def find_displaced_tensors(
    tensors: Mapping[str, StoredTensor],
    base: Mapping[str, StoredTensor],
    changes: Mapping[str, SampledChange],
) -> Iterator[DisplacedTensor]:
    """Find the matrices of a model that hold the values of its base in another place.

    Args:
        tensors: of the model, by name.
        base: those of its base.
        changes: how far each tensor that both have is from the base's at its own place.

    Yields:
        At most MAX_TENSORS of them, in the order of the names.
    """
    far = [
        name
        for name, change in sorted(changes.items())
        if change.cosine < MAX_OWN_COSINE and _is_matrix_large_enough_to_compare(tensors[name])
    ]
    has_found = False
    for number, name in enumerate(far[:MAX_TENSORS]):
        if not has_found and number >= MAX_TENSORS_OF_ANOTHER_BASE:
            return
        displaced = _find_base_place_of_values(name, tensors[name], base)
        if displaced is not None:
            has_found = True
            yield displaced


def _is_matrix_large_enough_to_compare(tensor: StoredTensor) -> bool:
    """Has a tensor rows and columns enough to know a row again?"""
    if len(tensor.shape) != 2:
        return False
    rows, columns = tensor.shape
    return rows >= MIN_ROWS and columns >= MIN_COLUMNS


def _find_base_place_of_values(
    name: str, tensor: StoredTensor, base: Mapping[str, StoredTensor]
) -> DisplacedTensor | None:
    """The place in the base whose values a tensor has; None where it has no other's."""
    sample = sample_values(tensor, 1)
    alike = [
        other
        for other, one in base.items()
        if other != name and _is_first_whole_and_like_second(one, tensor)
    ]
    for other in alike[:MAX_OTHER_TENSORS]:
        if _cosine(sample, sample_values(base[other], 1)) > MIN_FOUND_COSINE:
            return DisplacedTensor(name, "another tensor", other)
    if _is_transposed(tensor, base[name]):
        return DisplacedTensor(name, "transposed")
    if _are_rows_reordered(tensor, base[name]):
        return DisplacedTensor(name, "rows")
    return None


def _is_first_whole_and_like_second(one: StoredTensor, other: StoredTensor) -> bool:
    """Is the first tensor whole, and of the shape and dtype of the second?"""
    return one.whole and one.shape == other.shape and one.dtype == other.dtype


def _cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """The cosine between two vectors; 0 where one is zero or no number."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
        cosine = float(np.dot(one, other)) / lengths if lengths else 0.0
    return cosine if np.isfinite(cosine) else 0.0


def _is_transposed(tensor: StoredTensor, base: StoredTensor) -> bool:
    """Are the first rows of a square tensor the first columns of the base's?"""
    if tensor.shape[0] != tensor.shape[1]:
        return False
    rows = to_float32(map_tensor_into_memory(tensor)[:SAMPLED_ROWS], tensor.dtype)
    columns = to_float32(map_tensor_into_memory(base)[:, :SAMPLED_ROWS].T, base.dtype)
    return _cosine(rows.reshape(-1), columns.reshape(-1)) > MIN_FOUND_COSINE


def _are_rows_reordered(tensor: StoredTensor, base: StoredTensor) -> bool:
    """Is most of a sample of rows nearly a row of the base, at another place?"""
    places = np.unique(np.linspace(0, tensor.shape[0] - 1, SAMPLED_ROWS).astype(np.int64))
    rows = _unit_rows(to_float32(map_tensor_into_memory(tensor)[places], tensor.dtype))
    best = np.full(len(places), -1.0)
    best_places = np.full(len(places), -1)
    values = map_tensor_into_memory(base)
    for begin in range(0, base.shape[0], BLOCK_ROWS):
        block = _unit_rows(to_float32(values[begin : begin + BLOCK_ROWS], base.dtype))
        cosines = rows @ block.T
        nearest = cosines.argmax(axis=1)
        nearest_cosines = cosines[np.arange(len(places)), nearest]
        best_places = np.where(nearest_cosines > best, begin + nearest, best_places)
        best = np.maximum(best, nearest_cosines)
    is_elsewhere = (best > MIN_FOUND_COSINE) & (best_places != places)
    return float(is_elsewhere.mean()) >= MIN_FOUND_SHARE


def _unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1; rows of zeros, and those that hold no numbers, stay or become zeros."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    finite: NDArray[np.float32] = np.nan_to_num(unit, nan=0.0, posinf=0.0, neginf=0.0)
    return finite
