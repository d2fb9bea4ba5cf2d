"""The embedding of a model, read from its safetensors files without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.errors import TokenizerError

EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight", "tok_embeddings.weight")
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LONGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""


class Embedding(NamedTuple):
    """The input embedding matrix, on disk."""

    file: Path
    name: str
    values: NDArray[Any]
    """(rows, width), memory-mapped; bfloat16 as its 16 bits"""
    bfloat16: bool

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """(ids, width)"""
        values = np.asarray(self.values[ids])
        if self.bfloat16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)


def embedding(folder: Path) -> Embedding | None:
    """The embedding in a model folder; None where it has no safetensors, or none with one that can be read.

    Raises TokenizerError for a file that is cut off or no safetensors file.
    """
    for path in sorted(folder.glob("*.safetensors")):
        try:
            found = _embedding(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TokenizerError(
                f"{path}: not a whole safetensors file ({error}); "
                "download it again, or name another folder with --model"
            ) from None
        if found is not None:
            return found
    return None


def embedding_rows(folder: Path, config: dict[str, Any]) -> int | None:
    """Rows of the embedding: of the weights, else by config.json; None where neither says."""
    found = embedding(folder)
    if found is not None:
        return int(found.values.shape[0])
    for part in (config, config.get("text_config")):
        if isinstance(part, dict) and isinstance(part.get("vocab_size"), int):
            return int(part["vocab_size"])
    return None


def _embedding(path: Path) -> Embedding | None:
    """The embedding in one file: 8 bytes with the length of a JSON header, the header, the tensors."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > LONGEST_HEADER:
            raise ValueError(f"a header of {length:,} bytes")
        header = json.loads(file.read(length))
    for name, entry in header.items():
        if name.endswith(EMBEDDINGS) and len(entry["shape"]) == 2 and entry["dtype"] in DTYPES:
            start = 8 + length + entry["data_offsets"][0]
            values = np.memmap(path, DTYPES[entry["dtype"]], mode="r", offset=start, shape=tuple(entry["shape"]))
            return Embedding(path, name, values, entry["dtype"] == "BF16")
    return None
