"""Finds the folders beside a saved model that a training wrote, and tells which of them its weights came from.

A project has `checkpoint-N` folders and adapters, and a folder that is given away: merged, averaged or copied. Names do
not say what it was made of, so the weights decide: those of a copy are equal, and the change of a merged adapter is in
the model (`find_merged_adapter_beside`). The trade-off: samples, of the last checkpoints alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.compare_tensor_samples import (
    SampledChange,
    compare_sampled_tensors,
    sample_values,
)
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES
from truetune.checkpoint.weight_diff import round_to_format
from truetune.errors import UsageError

Floats = NDArray[np.float32]
MAX_FOLDERS = 60
"""As for bases (`find_base_model_in_nearby_folders`)"""
CHECKPOINT_NAME = re.compile(r"checkpoint-(\d{1,12})")
MAX_CHECKPOINTS = 6
"""The last ones. Chosen, not measured: each is compared by samples"""
SAMPLED_BYTES = 1 << 26
"""Values of all tensors that are compared with one folder. Chosen: a second of reading"""
SAMPLED_TENSORS = 16
TRIED_PARTS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.07,
    0.1,
    0.15,
    0.2,
    0.25,
    0.35,
    0.5,
    0.7,
    1.0,
)
"""Chosen: neighbours are so near to each other that rounded changes resemble one of them to nine tenths"""
MIN_CORRELATION_OF_FIT = 0.9
"""As for merged adapters (`find_merged_adapter_beside`)"""
STRETCHES = 4
"""Places in each of them"""


class PartOfChange(NamedTuple):
    """How much of what a training changed is in a model."""

    times: float
    """How many times the change is there"""
    correlation: float
    """Of the model's change and the checkpoint's"""


def checkpoints_beside(model: Checkpoint) -> list[Checkpoint]:
    """The last numbered checkpoints in or beside a folder that hold the same kind of weights, the latest last."""
    own = model.folder.resolve()
    if CHECKPOINT_NAME.fullmatch(own.name):
        return []
    folders = sorted(_numbered_folders(own), key=_step_of_folder)[-MAX_CHECKPOINTS:]
    return [found for folder in folders if (found := _read_of_same_kind(folder, model)) is not None]


def equal_tensors(model: Checkpoint, other: Checkpoint) -> dict[str, bool]:
    """Tensor -> are all its sampled values those of the other folder? Of tensors that both have."""
    changes = compare_sampled_tensors(model.tensors, other.tensors, budget=SAMPLED_BYTES)
    return {name: change.seen == change.same for name, change in changes.items()}


def changes_between(model: Checkpoint, other: Checkpoint) -> dict[str, SampledChange]:
    """How far each tensor is from that of the other folder, by samples."""
    return compare_sampled_tensors(model.tensors, other.tensors, budget=SAMPLED_BYTES)


def part_of_change(model: Checkpoint, trained: Checkpoint, base: Checkpoint) -> PartOfChange | None:
    """How much of what a checkpoint changed in its base is in a model; None where nothing can be compared.

    A small part is mostly rounded away in 16 bits, and the least squares say nothing of it. Then each of some parts is
    tried, rounded as the model is, and the one that resembles the model most counts.
    """
    samples = [
        _sample_change(model.tensors[name], trained.tensors[name], base.tensors[name])
        for name in _spread_names(model.tensors, trained.tensors, base.tensors)
    ]
    if not samples or not any(sample.moved.any() for sample in samples):
        return None
    fitted = _fit_part(samples)
    if fitted.correlation >= MIN_CORRELATION_OF_FIT:
        return fitted
    tried = [PartOfChange(times, _correlation_at(times, samples)) for times in TRIED_PARTS]
    return max(tried, key=lambda part: part.correlation)


class _SampledChanges(NamedTuple):
    """Some values of one tensor."""

    dtype: str
    start: Floats
    moved: Floats
    """The model's minus the base's"""
    trained: Floats
    """The checkpoint's minus the base's"""


def _fit_part(samples: list[_SampledChanges]) -> PartOfChange:
    """The part by least squares, as if nothing was rounded."""
    of_model = of_training = product = 0.0
    for sample in samples:
        of_model += float(np.square(sample.moved, dtype=np.float64).sum())
        of_training += float(np.square(sample.trained, dtype=np.float64).sum())
        product += float(np.dot(sample.moved.astype(np.float64), sample.trained.astype(np.float64)))
    size = of_model * of_training
    if not size > 0 or not np.isfinite(product):
        return PartOfChange(0.0, 0.0)
    return PartOfChange(product / of_training, product / float(np.sqrt(size)))


def _sample_change(
    model: StoredTensor, trained: StoredTensor, base: StoredTensor
) -> _SampledChanges:
    """Some values of a tensor in the base, and what the model and the training made of them."""
    start = round_to_format(sample_values(base, STRETCHES), model.dtype)
    return _SampledChanges(
        model.dtype,
        start,
        sample_values(model, STRETCHES) - start,
        sample_values(trained, STRETCHES) - start,
    )


def _correlation_at(times: float, samples: list[_SampledChanges]) -> float:
    """How much the model's change resembles a part of the training's, rounded as the model is."""
    of_model = of_part = product = 0.0
    for sample in samples:
        part = np.asarray(sample.start + np.float32(times) * sample.trained, dtype=np.float32)
        expected = round_to_format(part, sample.dtype) - sample.start
        of_model += float(np.square(sample.moved, dtype=np.float64).sum())
        of_part += float(np.square(expected, dtype=np.float64).sum())
        product += float(np.dot(sample.moved.astype(np.float64), expected.astype(np.float64)))
    size = of_model * of_part
    return product / float(np.sqrt(size)) if size > 0 and np.isfinite(product) else 0.0


def _spread_names(*tables: Mapping[str, StoredTensor]) -> list[str]:
    """Names of some matrices that all have in the same shape, spread evenly."""
    first = tables[0]
    names = [
        name
        for name, tensor in first.items()
        if len(tensor.shape) == 2 and all(_is_alike(table.get(name), tensor) for table in tables)
    ]
    return names[:: max(1, len(names) // SAMPLED_TENSORS)]


def _is_alike(tensor: StoredTensor | None, other: StoredTensor) -> bool:
    """Has a tensor the shape of another, and plain numbers?"""
    return (
        tensor is not None
        and tensor.whole
        and tensor.shape == other.shape
        and tensor.dtype in NUMPY_TYPES
    )


def _numbered_folders(folder: Path) -> Iterator[Path]:
    """The folders `checkpoint-N` in a folder, beside it, and in the folders beside it."""
    beside = list(_folders_in(folder.parent))
    for path in (*_folders_in(folder), *beside):
        if CHECKPOINT_NAME.fullmatch(path.name):
            yield path
    for parent in beside:
        if parent != folder:
            yield from (
                path for path in _folders_in(parent) if CHECKPOINT_NAME.fullmatch(path.name)
            )


def _folders_in(parent: Path) -> Iterator[Path]:
    """The folders in a folder; none of a store of many."""
    try:
        entries = sorted(islice(parent.iterdir(), MAX_FOLDERS + 1))
        if len(entries) <= MAX_FOLDERS:
            yield from (path for path in entries if path.is_dir())
    except OSError:
        return


def _step_of_folder(folder: Path) -> int:
    """The step in the name of a checkpoint's folder."""
    match = CHECKPOINT_NAME.fullmatch(folder.name)
    return int(match[1]) if match is not None else 0


def _read_of_same_kind(folder: Path, model: Checkpoint) -> Checkpoint | None:
    """The checkpoint in a folder; None where it is of another kind, or shares no tensor's name."""
    try:
        other = read_checkpoint(folder)
    except UsageError:
        return None
    is_comparable = other.kind == model.kind and not other.faults
    return other if is_comparable and other.tensors.keys() & model.tensors.keys() else None
