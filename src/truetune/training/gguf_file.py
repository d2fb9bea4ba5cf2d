"""A GGUF file, read back with the `gguf` package and compared with the model that it was made of."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.compare_samples import map_tensor
from truetune.checkpoint.float_formats import NUMPY_TYPES, to_float32
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.errors import UsageError
from truetune.render.probes import Probes

TOLERANCE = {"F64": 0.0, "F32": 0.0, "F16": 1e-3, "BF16": 4e-3, "Q8_0": 1e-2}
"""rms of the difference over rms, by format: a half step for floats (2^-11, 2^-9), measured for Q8_0"""
COARSE = 0.2
"""For all other formats"""
SPECIAL = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "pad": "padding_token_id",
    "unk": "unknown_token_id",
}
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True)
class GgufFile:
    """One file. Raises UsageError where the package `gguf` is not installed."""

    path: Path

    @cached_property
    def package(self) -> Any:
        try:
            return importlib.import_module("gguf")
        except ImportError:
            raise UsageError(
                "reading the file back needs the package gguf: pip install gguf"
            ) from None

    @cached_property
    def reader(self) -> Any:
        return self.package.GGUFReader(self.path)

    def value(self, name: str) -> Any:
        """A field; None where it is not there"""
        field = self.reader.fields.get(name)
        return None if field is None else field.contents()

    @cached_property
    def tensors(self) -> dict[str, Any]:
        return {tensor.name: tensor for tensor in self.reader.tensors}

    def values(self, name: str) -> NDArray[np.float32]:
        """Unpacked; in the order of rows that the file has"""
        tensor = self.tensors[name]
        unpacked = self.package.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.asarray(unpacked, dtype=np.float32).reshape(
            [int(n) for n in reversed(tensor.shape)]
        )

    @cached_property
    def names(self) -> Any:
        """The package's map from names of transformers to those of the file; None for an unknown architecture"""
        architecture = self.value("general.architecture")
        known = {name: arch for arch, name in self.package.MODEL_ARCH_NAMES.items()}
        layers = self.value(f"{architecture}.block_count")
        if architecture not in known or layers is None:
            return None
        return self.package.get_tensor_name_map(known[architecture], int(layers))


@dataclass(frozen=True)
class Compared:
    """Tensors of a model against those of a file."""

    equal: int
    """As near as their format allows"""
    different: tuple[str, ...]
    unknown: tuple[str, ...]
    """Tensors of the model whose place in the file is not known"""
    worst: float
    """rms of the difference over rms, of those that are equal"""


def compare_tensors(file: GgufFile, model: Checkpoint) -> Compared:
    """Every tensor of the model, unpacked. Converters turn the rows of some matrices, and add 1 to some norms."""
    equal, worst = 0, 0.0
    different, unknown = [], []
    heads = _heads(model.config)
    for name, tensor in model.tensors.items():
        place = file.names.get_name(name, try_suffixes=(".weight", ".bias")) if file.names else None
        if place not in file.tensors or tensor.dtype not in NUMPY_TYPES or not tensor.whole:
            unknown.append(name)
            continue
        ours, theirs = to_float32(map_tensor(tensor), tensor.dtype), file.values(place)
        allowed = TOLERANCE.get(file.tensors[place].tensor_type.name, COARSE)
        error = min((relative(form, theirs) for form in _forms(ours, heads)), default=np.inf)
        if error <= allowed:
            equal, worst = equal + 1, max(worst, error)
        else:
            different.append(f"{name}: differs from {place} by {error:.2g} of its size")
    return Compared(equal, tuple(different), tuple(unknown), float(worst))


def compare_words(
    file: GgufFile, probes: Probes, stops: frozenset[int]
) -> tuple[list[str], list[str]]:
    """What is wrong with template, vocabulary and special ids of the file, and what can't be told from it."""
    faults = []
    tokenizer = probes.tokenizer
    template = file.value("tokenizer.chat_template")
    if template != tokenizer.templates.get("default"):
        faults.append(
            "the chat template in the file is another"
            if template
            else "the file has no chat template"
        )
    for name, field in SPECIAL.items():
        here, there = tokenizer.special.get(name), file.value(f"tokenizer.ggml.{field}")
        if here is not None and there is not None and int(there) != here.id:
            faults.append(f"{name} is {here.id:,} in the tokenizer and {int(there):,} in the file")
        elif here is not None and there is None and name in ("bos", "eos"):
            faults.append(f"{name} ({here.id:,}) is not in the file")
    words = file.value("tokenizer.ggml.tokens") or []
    spelled = {id: tokenizer.backend.id_to_token(id) for id in range(tokenizer.vocabulary)}
    other = [
        id
        for id, text in spelled.items()
        if text is not None and (id >= len(words) or words[id] != text)
    ]
    if other:
        faults.append(
            f"{len(other):,} of {len(spelled):,} tokens are spelled otherwise in the file, first"
            f" {other[0]:,}"
        )
    ends = {
        int(value) for field in ENDS if (value := file.value(f"tokenizer.ggml.{field}")) is not None
    }
    notes = [
        f"{spelled.get(id)} ({id:,}) ends answers, and the file does not say so: llama.cpp stops"
        " there only where it knows the token by its text"
        for id in sorted(stops - ends)
    ]
    return faults, notes


def _heads(config: Mapping[str, Any]) -> list[int]:
    given = [config.get("num_attention_heads"), config.get("num_key_value_heads")]
    return [n for n in dict.fromkeys(given) if isinstance(n, int) and n > 0]


def _forms(values: NDArray[np.float32], heads: list[int]) -> Iterator[NDArray[np.float32]]:
    """As it is; plus one; with the halves of each head interleaved, as llama.cpp's rotary embedding wants them"""
    yield values
    yield values + 1
    for count in heads:
        rows = values.shape[0]
        if values.ndim <= 2 and rows % (2 * count) == 0:
            halves = values.reshape(count, 2, rows // count // 2, *values.shape[1:])
            yield halves.swapaxes(1, 2).reshape(values.shape)


def relative(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """rms of the difference over rms; rows that the file has more are padding"""
    if ours.shape[1:] != theirs.shape[1:] or len(theirs) < len(ours):
        return float("inf")
    size = float(np.square(ours, dtype=np.float64).sum())
    moved = float(np.square(ours - theirs[: len(ours)], dtype=np.float64).sum())
    return float(np.sqrt(moved / size)) if size else float(moved > 0)
