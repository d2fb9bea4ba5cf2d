"""Reads a GGUF file back with the `gguf` package, and compares it with the model that it was made
of.

Every tensor is unpacked and compared in the few forms in which converters write it; template, vocabulary and special
ids are compared as they are. The whole file is read, which takes as long as writing it did, and proves what was
written rather than what was meant.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32
from truetune.errors import UsageError
from truetune.render.template_probes import Probes
from truetune.render.tokenizer import Tokenizer

# Half of a format's step is what rounding alone can do. At twice that a wrong conversion of small
# values would pass; below it, correct files would fail.
TOLERANCE = {"F64": 0.0, "F32": 0.0, "F16": 1e-3, "BF16": 4e-3, "Q8_0": 1e-2}
"""rms of the difference over rms, by format: a half step for floats (2^-11, 2^-9), measured for Q8_0"""
# Chosen, not measured for each: formats lose more the fewer bits they have, while rows in a wrong
# order differ by 1.4 times their size. So this tells a permutation from rounding, and no more.
COARSE_TOLERANCE = 0.2
"""For all other formats"""
SPECIAL_FIELDS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "pad": "padding_token_id",
    "unk": "unknown_token_id",
}
END_FIELDS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file that is read for comparison. Raises UsageError where the package `gguf` is not
    installed.
    """

    path: Path

    @cached_property
    def gguf_package(self) -> Any:
        """The package (module) `gguf`. Raises UsageError where it is not installed."""
        try:
            return importlib.import_module("gguf")
        except ImportError:
            raise UsageError(
                "reading the file back needs the package gguf: pip install gguf"
            ) from None

    @cached_property
    def reader(self) -> Any:
        """The reader of `gguf`: it maps the file into memory; tensors are unpacked one by one."""
        return self.gguf_package.GGUFReader(self.path)

    def value(self, name: str) -> Any:
        """A metadata field of the file; None where it has none of that name."""
        field = self.reader.fields.get(name)
        return None if field is None else field.contents()

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """The tensors by their names in the file."""
        return {tensor.name: tensor for tensor in self.reader.tensors}

    def tensor_values(self, name: str) -> NDArray[np.float32]:
        """A tensor's values, unpacked, in the order of rows that the file has."""
        tensor = self.tensors[name]
        # The package's own code and not ours: a second reader of these formats could share no error
        # with llama.cpp, but would bring its own.
        unpacked = self.gguf_package.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.asarray(unpacked, dtype=np.float32).reshape(
            # GGUF lists the fastest dimension first.
            [int(n) for n in reversed(tensor.shape)]
        )

    @cached_property
    def tensor_name_map(self) -> Any:
        """The package's map from names of transformers to those of the file; None for an unknown architecture"""
        architecture = self.value("general.architecture")
        known = {name: arch for arch, name in self.gguf_package.MODEL_ARCH_NAMES.items()}
        layers = self.value(f"{architecture}.block_count")
        if architecture not in known or layers is None:
            return None
        return self.gguf_package.get_tensor_name_map(known[architecture], int(layers))


@dataclass(frozen=True)
class TensorComparison:
    """What a comparison of a model's tensors with those of a file found."""

    equal: int
    """As near as their format allows"""
    different: tuple[str, ...]
    unknown: tuple[str, ...]
    """Tensors of the model whose place in the file is not known"""
    worst: float
    """rms of the difference over rms, of those that are equal"""


def compare_tensors_with_gguf(file: GgufFile, model: Checkpoint) -> TensorComparison:
    """Compare every tensor of the model with the file's, unpacked. Converters turn the rows of some
    matrices, and add 1 to some norms.
    """
    equal, worst = 0, 0.0
    different, unknown = [], []
    heads = _query_and_key_head_counts(model.config)
    for name, tensor in model.tensors.items():
        place = (
            file.tensor_name_map.get_name(name, try_suffixes=(".weight", ".bias"))
            if file.tensor_name_map
            else None
        )
        # Named as unknown and never as equal: a converter may drop a tensor or join several in one.
        if place not in file.tensors or tensor.dtype not in NUMPY_TYPES or not tensor.whole:
            unknown.append(name)
            continue
        model_values, file_values = (
            to_float32(map_tensor_into_memory(tensor), tensor.dtype),
            file.tensor_values(place),
        )
        allowed = TOLERANCE.get(file.tensors[place].tensor_type.name, COARSE_TOLERANCE)
        # The converter's form is not asked for by architecture: any of the known ones that fits is
        # the proof, and an unknown one fails loudly.
        error = min(
            (
                relative_rms_error(form, file_values)
                for form in _forms_that_converters_write(model_values, heads)
            ),
            default=np.inf,
        )
        if error <= allowed:
            equal, worst = equal + 1, max(worst, error)
        else:
            different.append(f"{name}: differs from {place} by {error:.2g} of its size")
    return TensorComparison(equal, tuple(different), tuple(unknown), float(worst))


def compare_tokenizer_with_gguf(
    file: GgufFile, probes: Probes, stops: frozenset[int]
) -> tuple[list[str], list[str]]:
    """Compare what a server reads from the file besides the weights: template, vocabulary and
    special ids.

    Args:
        file: the GGUF file.
        probes: of the tokenizer that the model was exported with.
        stops: ids that end an answer of the model.

    Returns:
        What is wrong, and what can't be told from the file.
    """
    tokenizer = probes.tokenizer
    spelled = {id: tokenizer.backend.id_to_token(id) for id in range(tokenizer.vocabulary)}
    faults = [
        *_template_faults(file, tokenizer.templates.get("default")),
        *_special_id_faults(file, tokenizer),
        *_ids_with_other_text_faults(file, spelled),
    ]
    return faults, _unlisted_stop_notes(file, spelled, stops)


def _template_faults(file: GgufFile, expected: str | None) -> Iterator[str]:
    """Faults of the chat template, which is compared as text: another text may render the same, but
    nobody has proved it.
    """
    template = file.value("tokenizer.chat_template")
    if template != expected:
        yield (
            "the chat template in the file is another"
            if template
            else "the file has no chat template"
        )


def _special_id_faults(file: GgufFile, tokenizer: Tokenizer) -> Iterator[str]:
    """Special ids that the file lacks, or that differ from the tokenizer's."""
    for name, field in SPECIAL_FIELDS.items():
        here, there = tokenizer.special.get(name), file.value(f"tokenizer.ggml.{field}")
        if here is None:
            continue
        if there is not None and int(there) != here.id:
            yield f"{name} is {here.id:,} in the tokenizer and {int(there):,} in the file"
        # Many vocabularies have no pad or unk, and no answer depends on them.
        elif there is None and name in ("bos", "eos"):
            yield f"{name} ({here.id:,}) is not in the file"


def _ids_with_other_text_faults(file: GgufFile, spelled: Mapping[int, str | None]) -> Iterator[str]:
    """Ids whose text in the file is another: every answer with them would read otherwise."""
    words = file.value("tokenizer.ggml.tokens") or []
    other = [
        id
        for id, text in spelled.items()
        # Ids without text are holes of the vocabulary; converters fill them with pads.
        if text is not None and (id >= len(words) or words[id] != text)
    ]
    if other:
        yield (
            f"{len(other):,} of {len(spelled):,} tokens are spelled otherwise in the file, first"
            f" {other[0]:,}"
        )


def _unlisted_stop_notes(
    file: GgufFile, spelled: Mapping[int, str | None], stops: frozenset[int]
) -> list[str]:
    """Notes on stop tokens that no field of the file names. A note and no fault: llama.cpp knows
    some by their text.
    """
    fields = (file.value(f"tokenizer.ggml.{field}") for field in END_FIELDS)
    ends = {int(value) for value in fields if value is not None}
    return [
        f"{spelled.get(id)} ({id:,}) ends answers, and the file does not say so: llama.cpp stops"
        " there only where it knows the token by its text"
        for id in sorted(stops - ends)
    ]


def _query_and_key_head_counts(config: Mapping[str, Any]) -> list[int]:
    """How many query heads and key heads there are, by which a converter may have permuted rows."""
    counts = [config.get("num_attention_heads"), config.get("num_key_value_heads")]
    return [n for n in dict.fromkeys(counts) if isinstance(n, int) and n > 0]


def _forms_that_converters_write(
    values: NDArray[np.float32], heads: list[int]
) -> Iterator[NDArray[np.float32]]:
    """A tensor's values in each form in which converters write them: as they are; plus one; with
    the halves of each head interleaved, as llama.cpp's rotary embedding wants them.
    """
    yield values
    yield values + 1
    for count in heads:
        rows = values.shape[0]
        if values.ndim <= 2 and rows % (2 * count) == 0:
            # llama.cpp rotates neighbours, transformers halves: rows 0 and d/2 of each head become
            # neighbours.
            halves = values.reshape(count, 2, rows // count // 2, *values.shape[1:])
            yield halves.swapaxes(1, 2).reshape(values.shape)


def relative_rms_error(
    model_values: NDArray[np.float32], file_values: NDArray[np.float32]
) -> float:
    """The root mean square of the difference over that of the model's values; rows that only the
    file has are padding.
    """
    # More rows are allowed in the file: vocabularies are padded to a multiple there.
    if model_values.shape[1:] != file_values.shape[1:] or len(file_values) < len(model_values):
        return float("inf")
    size = float(np.square(model_values, dtype=np.float64).sum())
    difference = float(
        np.square(model_values - file_values[: len(model_values)], dtype=np.float64).sum()
    )
    return float(np.sqrt(difference / size)) if size else float(difference > 0)
