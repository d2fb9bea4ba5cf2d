"""Infers the length of rows from the size of the tensor that did not fit, as a mask or as logits.

A mask has rows x length x length elements, logits have rows x length x vocabulary. The message prints the size to two
digits behind the point, so that for tensors of gigabytes few lengths fit, and of those that models and settings name
most often none or one. What several fit is not named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

MODEL_LENGTHS = (
    512,
    1_024,
    2_048,
    4_096,
    8_192,
    16_384,
    32_768,
    40_960,
    65_536,
    131_072,
    163_840,
    262_144,
    1_048_576,
)
"""Lengths that tokenizers name as their model's longest (`model_max_length`), and that settings cut at"""
WHOLE_CONTEXT = 32_768
"""Tokens from which a length is a model's whole context, and seldom what rows need"""
VOCABULARIES = (
    32_000, 32_064, 32_768, 49_152, 50_257, 100_352, 128_256, 131_072, 151_552, 151_936, 152_064, 200_064, 201_088,
    256_000, 262_144, 262_208,
)  # fmt: skip
"""Sizes of the vocabularies of published models: Llama, Mistral, Phi, SmolLM, GPT-2, GLM, Qwen, gpt-oss, Gemma"""
GIB = float(1 << 30)
ROUNDING_GIB = 0.006
"""Half of the last digit that the message prints"""
MIN_GIB = 1.0
"""Below, the digits that are printed fit too many lengths"""
PREFERRED_LENGTHS = (131_072, 32_768, 40_960, 262_144, 8_192, 4_096, 2_048, 16_384)
"""By how many published tokenizers name them"""


class TensorShape(NamedTuple):
    """What a tensor of this size is."""

    length: int
    text: str
    """`131,072 x 131,072 at 1 byte`"""

    @property
    def has_model_context_length(self) -> bool:
        """Is the length that of a model's whole context?"""
        return self.length >= WHOLE_CONTEXT


def mask_shape_of_size(gib: float | None, rows: int | None) -> TensorShape | None:
    """The rows and length of an attention mask of this size; None if none of the known lengths
    fits.
    """
    if gib is None or gib < MIN_GIB:
        return None
    return _shape_of_usual_length(_mask_shapes_of_size(gib, (rows or 1, 1)))


def _mask_shapes_of_size(gib: float, row_counts: Iterable[int]) -> Iterator[TensorShape]:
    """All masks of known lengths that have this size."""
    for rows in dict.fromkeys(row_counts):
        for width in (1, 2, 4, 8):
            for length in MODEL_LENGTHS:
                if _fits_printed_size(gib, rows * length * length * width):
                    yield TensorShape(
                        length,
                        f"{_rows_factor_as_text(rows)}{length:,} x {length:,} at {_bytes_as_text(width)}",
                    )


def logits_shape_of_size(
    gib: float | None, rows: int | None, *, is_float32: bool, limits: Collection[int] = ()
) -> TensorShape | None:
    """The rows, length and vocabulary of logits of this size; None if none of the known lengths and
    vocabularies fits, or several lengths do.

    Args:
        gib: the size.
        rows: of a batch, where that is known.
        is_float32: of the logits.
        limits: lengths that the settings cut rows at; they are asked before those of published models.
    """
    if gib is None or gib < MIN_GIB:
        return None
    widths = (4,) if is_float32 else (2, 4)
    for lengths in (limits, MODEL_LENGTHS):
        tensor_shapes = list(_logits_shapes_of_size(gib, rows or 1, widths, lengths))
        if tensor_shapes:
            break
    return tensor_shapes[0] if len({shape.length for shape in tensor_shapes}) == 1 else None


def _logits_shapes_of_size(
    gib: float, rows: int, widths: Iterable[int], lengths: Collection[int]
) -> Iterator[TensorShape]:
    """All logits of these lengths and known vocabularies that have this size."""
    for width in widths:
        for vocabulary in VOCABULARIES:
            for length in lengths:
                # The loss of a causal model leaves out the last token of each row in some releases.
                sizes = (rows * tokens * vocabulary * width for tokens in (length, length - 1))
                if any(_fits_printed_size(gib, size) for size in sizes):
                    text = f"{_rows_factor_as_text(rows)}{length:,} x {vocabulary:,} at {_bytes_as_text(width)}"
                    yield TensorShape(length, text)


def _shape_of_usual_length(shapes: Iterable[TensorShape]) -> TensorShape | None:
    """The one of several shapes whose length most tokenizers name; None if there is none of those."""
    order = {length: number for number, length in enumerate(PREFERRED_LENGTHS)}
    known = [shape for shape in shapes if shape.length in order]
    return min(known, key=lambda shape: order[shape.length], default=None)


def _fits_printed_size(gib: float, size: int) -> bool:
    """Is a size in bytes the one that the message prints, in its digits?"""
    return abs(size / GIB - gib) <= ROUNDING_GIB


def _rows_factor_as_text(rows: int) -> str:
    """The factor of the rows as text: `4 x `, empty for a single row."""
    return f"{rows} x " if rows > 1 else ""


def _bytes_as_text(width: int) -> str:
    """A number of bytes as text: `1 byte`, `4 bytes`."""
    return f"{width} byte{'s' * (width > 1)}"
