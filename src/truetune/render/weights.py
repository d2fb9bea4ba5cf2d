"""The embedding of a model, read from its safetensors files without torch."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.errors import TokenizerError

EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight", "tok_embeddings.weight")
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


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
    """The embedding in a model folder; None where it has no safetensors, or none with one that can be read."""
    for path in sorted(folder.glob("*.safetensors")):
        header, start = _header(path)
        for name, entry in header.items():
            if name.endswith(EMBEDDINGS) and len(entry["shape"]) == 2 and entry["dtype"] in DTYPES:
                dtype = np.dtype(DTYPES[entry["dtype"]])
                offset = start + entry["data_offsets"][0]
                values = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=tuple(entry["shape"]))
                return Embedding(path, name, values, entry["dtype"] == "BF16")
    return None


def embedding_rows(folder: Path, config: dict[str, Any]) -> int | None:
    """Rows of the embedding: of the weights, else by config.json; None where neither says."""
    found = embedding(folder)
    if found is not None:
        return int(found.values.shape[0])
    size = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
    return size if isinstance(size, int) else None


def _header(path: Path) -> tuple[dict[str, Any], int]:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > 100_000_000:
                raise ValueError(f"a header of {length:,} bytes")
            header = json.loads(file.read(length))
    except (ValueError, struct.error) as error:
        raise TokenizerError(f"{path}: not a safetensors file: {error}") from None
    header.pop("__metadata__", None)
    return header, 8 + length
