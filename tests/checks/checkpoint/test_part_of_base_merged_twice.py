"""Merged models with a part of their base in them twice, beside moves that are as large and made by training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tests.checks.pages.checkpoint import write
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.checkpoint.part_of_base_merged_twice import PartOfBaseMergedTwice

Matrix = NDArray[np.float32]
RANDOM = np.random.default_rng(0)


def _principal(weight: Matrix, rank: int) -> Matrix:
    """PiSSA's part: that of the largest singular values."""
    left, sizes, right = np.linalg.svd(weight, full_matrices=False)
    return np.asarray((left[:, :rank] * sizes[:rank]) @ right[:rank], np.float32)


def _first_columns(weight: Matrix, rank: int) -> Matrix:
    """OLoRA's part: that of the first columns of the QR decomposition."""
    columns, rows = np.linalg.qr(weight)
    return np.asarray(columns[:, :rank] @ rows[:rank], np.float32)


def _trained(weight: Matrix, share: float, rank: int = 4) -> Matrix:
    """A change of low rank that has `share` of the weight's size."""
    change = RANDOM.normal(size=(weight.shape[0], rank)) @ RANDOM.normal(
        size=(rank, weight.shape[1])
    )
    size = np.linalg.norm(weight) / np.linalg.norm(change)
    return np.asarray(share * size * change, np.float32)


FAULTS: dict[str, Callable[[Matrix], Matrix]] = {
    "PiSSA": lambda w: w + _principal(w, 4) + _trained(w, 0.03),
    "PiSSA of one direction": lambda w: w + _principal(w, 1),
    "PiSSA that was trained long": lambda w: w + _principal(w, 8) + _trained(w, 0.15),
    "OLoRA": lambda w: w + _first_columns(w, 4) + _trained(w, 0.03),
    "the base itself": lambda w: 2 * w,
    "float16": lambda w: (w + _principal(w, 4)).astype(np.float16).astype(np.float32),
}
HEALTHY: dict[str, Callable[[Matrix], Matrix]] = {
    "PiSSA on what is left of the base": lambda w: w + _trained(w, 0.03),
    "a small LoRA": lambda w: w + _trained(w, 0.06),
    "a large LoRA": lambda w: w + _trained(w, 0.8),
    "a huge LoRA": lambda w: w + _trained(w, 3.0),
    "weights that grow": lambda w: np.float32(1.1) * w,
    "weights that shrink": lambda w: np.float32(0.8) * w,
    "the mean with another model": lambda w: (w + _trained(w, 1.0, rank=64)) * np.float32(0.5),
    "noise of a quantization": lambda w: np.asarray(np.round(w * 30) / 30, np.float32),
}


def _findings(change: Callable[[Matrix], Matrix], folder: Path) -> list[str]:
    base = write({"llama": 2}, folder / "base")
    merged = write({"llama": 2}, folder / "merged")
    tensors = {
        name: change(one) if name.endswith("_proj.weight") else one
        for name, one in load_file(base / "model.safetensors").items()
    }
    save_file(tensors, merged / "model.safetensors")
    found = PartOfBaseMergedTwice(read_checkpoint(merged, base=base)).findings()
    return [finding.severity for finding in found]


@pytest.mark.parametrize("name", FAULTS)
def test_a_part_of_the_base_again(name: str, tmp_path: Path) -> None:
    assert _findings(FAULTS[name], tmp_path) == ["error"]


@pytest.mark.parametrize("name", HEALTHY)
def test_moves_that_training_makes(name: str, tmp_path: Path) -> None:
    assert _findings(HEALTHY[name], tmp_path) == []
