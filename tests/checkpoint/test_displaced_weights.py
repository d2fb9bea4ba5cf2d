"""Matrices that hold the base's values in another place are found, and those of a training are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tests.parts.lay_out import model_folder
from truetune.checkpoint.compare_tensor_samples import compare_sampled_tensors
from truetune.checkpoint.find_displaced_weights import find_displaced_tensors
from truetune.checkpoint.load_checkpoint import read_checkpoint

Tensors = dict[str, NDArray[np.float32]]
LAYER = "model.layers.{}."
QUERY = LAYER.format(0) + "self_attn.q_proj.weight"
KEY = LAYER.format(1) + "self_attn.k_proj.weight"
OUT = LAYER.format(0) + "self_attn.o_proj.weight"
GATE, UP = (LAYER.format(1) + f"mlp.{name}_proj.weight" for name in ("gate", "up"))
HEAD_VALUES = 64
NOISE = 0.05
"""Of each tensor's own size: more than a training moves it"""


@pytest.fixture(scope="module")
def weights() -> Tensors:
    """The first two layers of SmolLM2-135M, whose weights were trained."""
    tensors = load_file(model_folder() / "model.safetensors")
    kept = ("model.layers.0.", "model.layers.1.")
    return {
        name: np.asarray(values, np.float32)
        for name, values in tensors.items()
        if name.startswith(kept)
    }


def permute_for_interleaved_rotary(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inverse of `permute` in transformers' conversion of Llama's weights."""
    rows, columns = values.shape
    heads = rows // HEAD_VALUES
    return values.reshape(heads, 2, HEAD_VALUES // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def rotary(tensors: Tensors) -> None:
    for name in (QUERY, KEY):
        tensors[name] = permute_for_interleaved_rotary(tensors[name])


def exchange_gate_and_up(tensors: Tensors) -> None:
    tensors[GATE], tensors[UP] = tensors[UP], tensors[GATE]


def transpose(tensors: Tensors) -> None:
    tensors[OUT] = tensors[OUT].T.copy()


def exchange_layers(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith(LAYER.format(0))]:
        other = name.replace(LAYER.format(0), LAYER.format(1))
        tensors[name], tensors[other] = tensors[other], tensors[name]


def reverse_rows(tensors: Tensors) -> None:
    tensors[UP] = tensors[UP][::-1].copy()


def leave(tensors: Tensors) -> None:
    del tensors


def reinitialise(tensors: Tensors) -> None:
    tensors[UP] = np.random.default_rng(1).normal(size=tensors[UP].shape).astype(np.float32)


def negate(tensors: Tensors) -> None:
    tensors[UP] = -tensors[UP]


def fill_with_zeros(tensors: Tensors) -> None:
    tensors[UP] = np.zeros_like(tensors[UP])


def fill_with_nan(tensors: Tensors) -> None:
    tensors[UP] = np.full_like(tensors[UP], np.nan)


def displaced(folder: Path, base: Tensors, edit: Callable[[Tensors], None]) -> dict[str, str]:
    """Tensor -> how it is displaced, after a training that moved each value and an edit."""
    generator = np.random.default_rng(0)
    tuned = {
        name: values + NOISE * values.std() * generator.normal(size=values.shape).astype(np.float32)
        for name, values in base.items()
    }
    edit(tuned)
    for name, tensors in (("base", base), ("tuned", tuned)):
        (folder / name).mkdir()
        save_file(tensors, folder / name / "model.safetensors")
    before, after = read_checkpoint(folder / "base"), read_checkpoint(folder / "tuned")
    changes = compare_sampled_tensors(after.tensors, before.tensors)
    return {
        one.name: one.how for one in find_displaced_tensors(after.tensors, before.tensors, changes)
    }


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (rotary, {QUERY: "rows", KEY: "rows"}),
        (exchange_gate_and_up, {GATE: "another tensor", UP: "another tensor"}),
        (transpose, {OUT: "transposed"}),
        (reverse_rows, {UP: "rows"}),
    ],
)
def test_values_are_found_in_their_place(
    tmp_path: Path, weights: Tensors, edit: Callable[[Tensors], None], expected: dict[str, str]
) -> None:
    assert displaced(tmp_path, weights, edit) == expected


def test_exchanged_layers(tmp_path: Path, weights: Tensors) -> None:
    found = displaced(tmp_path, weights, exchange_layers)
    matrices = {name for name, values in weights.items() if values.ndim == 2}
    assert found == dict.fromkeys(matrices, "another tensor")


@pytest.mark.parametrize("edit", [leave, reinitialise, negate, fill_with_zeros, fill_with_nan])
def test_other_changes_are_none(
    tmp_path: Path, weights: Tensors, edit: Callable[[Tensors], None]
) -> None:
    assert displaced(tmp_path, weights, edit) == {}
