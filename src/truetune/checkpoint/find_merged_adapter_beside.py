"""Finds the adapter beside a model whose change is in its weights, and measures how often it is in each tensor.

An adapter is taken for the merged one only by the numbers: what separates the model from its base points where the
adapter's change does. Folders of other trainings on the same base lie side by side, so that no name says it. The
trade-off: some rows of each tensor; a merge whose change is mostly rounded away is not recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from truetune.checkpoint.adapter_delta import LowRankDelta, adapter_deltas_and_uncomputed_tensors
from truetune.checkpoint.adapter_started_from_base import part_of_base_at_start
from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import to_float32
from truetune.errors import UsageError

MAX_FOLDERS = 60
"""As for bases (`find_base_model_in_nearby_folders`)"""
SAMPLED_ROWS = 64
"""Of each tensor. Chosen, not measured: a hundred thousand values at 2,048 columns"""
MIN_CORRELATION = 0.9
"""Of the model's change and the adapter's, in the median tensor. Unrelated changes have about 0; a further training,
or rounding to bfloat16, takes some of it"""
STEP_OF_BFLOAT16 = 2.0**-8
"""Relative; a change below half of it may be rounded away"""


class SampledMerge(NamedTuple):
    """How much of an adapter's change is in one tensor."""

    times: float
    """How many times it is there"""
    correlation: float
    """Of the model's change and the adapter's"""
    is_base: bool
    """Are all sampled values the base's, though the change would show?"""


def find_merged_adapter_beside(
    model: Checkpoint,
) -> tuple[Checkpoint, dict[str, SampledMerge]] | None:
    """The adapter beside a model that was merged into it, with what is in each tensor; None where none was."""
    if model.base is None or model.kind != "model":
        return None
    best: tuple[Checkpoint, dict[str, SampledMerge]] | None = None
    # Checkpoints of one training resemble each other: the one that is merged fits best.
    for folder in _adapter_folders_beside(model.folder.resolve()):
        try:
            adapter = read_checkpoint(folder, base=model.base.folder)
        except UsageError:
            continue
        if part_of_base_at_start(adapter.adapter_config) or adapter.faults:
            continue
        merged = dict(_sample_merge(model.tensors, adapter, model.base))
        if median_correlation(merged) > (median_correlation(best[1]) if best else MIN_CORRELATION):
            best = adapter, merged
    return best


def median_correlation(merged: Mapping[str, SampledMerge]) -> float:
    """The median correlation in the tensors that are not the base's; 0 where none is."""
    correlations = sorted(one.correlation for one in merged.values() if not one.is_base)
    return correlations[len(correlations) // 2] if correlations else 0.0


def _adapter_folders_beside(folder: Path) -> Iterator[Path]:
    """The folders of adapters beside a folder, in it, and beside the one that it is in."""
    for parent in (folder.parent, folder, folder.parent.parent):
        try:
            entries = sorted(islice(parent.iterdir(), MAX_FOLDERS + 1))
        except OSError:
            continue
        if len(entries) > MAX_FOLDERS:
            continue
        yield from (
            path for path in entries if path != folder and (path / "adapter_config.json").is_file()
        )


def _sample_merge(
    tensors: Mapping[str, StoredTensor], adapter: Checkpoint, base: Checkpoint
) -> Iterator[tuple[str, SampledMerge]]:
    """What of the adapter's change is in each tensor that it changes."""
    deltas, _ = adapter_deltas_and_uncomputed_tensors(adapter, base.tensors)
    for name, delta in deltas.items():
        own = tensors.get(name)
        if not isinstance(delta, LowRankDelta) or delta.magnitude is not None:
            continue
        if own is None or delta.base is None or own.shape != delta.shape:
            continue
        sampled = _sample_tensor(own, delta)
        if sampled is not None:
            yield name, sampled


def _sample_tensor(own: StoredTensor, delta: LowRankDelta) -> SampledMerge | None:
    """What of the change is in some rows of a tensor; None where the change is too small to show."""
    assert delta.base is not None, "the caller skips it"
    stop = min(SAMPLED_ROWS, own.shape[0])
    before, after = (
        to_float32(map_tensor_into_memory(tensor)[:stop], tensor.dtype).astype(np.float64)
        for tensor in (delta.base, own)
    )
    change = delta.change_of_rows(0, stop).astype(np.float64)
    shows = np.abs(change) > np.abs(before) * STEP_OF_BFLOAT16
    size = float(np.square(change).sum())
    if not shows.any() or not np.isfinite(size):
        return None
    moved = after - before
    dot, length = float((moved * change).sum()), float(np.square(moved).sum())
    if length == 0:
        return SampledMerge(0.0, 0.0, is_base=True)
    return SampledMerge(dot / size, dot / np.sqrt(size * length), is_base=False)
