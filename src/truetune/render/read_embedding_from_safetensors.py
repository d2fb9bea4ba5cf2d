"""The embedding of a model, read from its safetensors files without torch.

Memory-mapped: rules look at a few hundred rows (are those of new tokens untrained?), and the file may have gigabytes.
bfloat16, which numpy has not, stays as its 16 bits until rows of it are asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint import find_input_embedding_and_output_head
from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.read_and_check_safetensors_header import (
    BrokenFile,
    read_safetensors_header,
)
from truetune.checkpoint.summarise_floats_by_bits import to_float32
from truetune.errors import TokenizerError


class EmbeddingRows(Protocol):
    """An input embedding matrix, on disk or in memory."""

    @property
    def name(self) -> str:
        """The name of the tensor."""

    @property
    def where(self) -> str:
        """Where the embedding is: the file's name, or another place."""

    @property
    def row_count(self) -> int:
        """The number of rows of the embedding."""

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows of these ids: (ids, width)."""


class Embedding(NamedTuple):
    """The input embedding matrix, on disk."""

    file: Path
    name: str
    values: NDArray[Any]
    """(rows, width), memory-mapped; bfloat16 as its 16 bits"""
    dtype: str
    """As the header spells it: `BF16`"""

    @property
    def where(self) -> str:
        """Where the embedding is: the file's name."""
        return self.file.name

    @property
    def row_count(self) -> int:
        """The number of rows of the embedding."""
        return len(self.values)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows of these ids: (ids, width)."""
        return to_float32(self.values[ids], self.dtype)


def find_embedding(folder: Path) -> Embedding | None:
    """The embedding in a model folder; None where it has no safetensors, or none with one that can be read.

    Raises TokenizerError for a file that is cut off or no safetensors file.
    """
    for path in sorted(folder.glob("*.safetensors")):
        try:
            header = read_safetensors_header(path)
        except (BrokenFile, OSError) as error:
            raise TokenizerError(f"{path}: not a whole safetensors file: {error}") from None
        if any(not tensor.whole for tensor in header.tensors):
            raise TokenizerError(
                f"{path}: {header.faults[0]}; download it again, or name another folder with"
                " --model"
            )
        # Sharded models hold it in one of their files, mostly the first.
        by_name = {tensor.name: tensor for tensor in header.tensors}
        match = find_input_embedding_and_output_head.find_embedding(by_name)
        if match is not None:
            tensor = match.tensor
            return Embedding(path, tensor.name, map_tensor_into_memory(tensor), tensor.dtype)
    return None


def embedding_rows(folder: Path, config: dict[str, Any]) -> int | None:
    """Rows of the embedding: of the weights, else by config.json; None where neither says."""
    matrix = find_embedding(folder)
    if matrix is not None:
        return matrix.row_count
    # Models of text and images keep the vocabulary's size one level deeper.
    for part in (config, config.get("text_config")):
        if isinstance(part, dict) and isinstance(part.get("vocab_size"), int):
            return int(part["vocab_size"])
    return None
