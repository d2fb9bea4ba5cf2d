"""The input embedding and the output head among the tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.bits import PLAIN, floats
from truetune.checkpoint.compare import mapped
from truetune.checkpoint.safetensors import Tensor

EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "embed_in.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
)
HEADS = ("lm_head.weight", "embed_out.weight", "output_layer.weight")


class Matrix(NamedTuple):
    """A matrix with one row for each token."""

    tensor: Tensor

    def __len__(self) -> int:
        return self.tensor.shape[0]

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """(ids, width)"""
        return floats(mapped(self.tensor)[ids], self.tensor.dtype)


def embedding(tensors: Mapping[str, Tensor]) -> Matrix | None:
    """The input embedding; None where there is none that can be read."""
    return _first(tensors, EMBEDDINGS)


def head(tensors: Mapping[str, Tensor]) -> Matrix | None:
    """The output head, where it is a tensor of its own."""
    return _first(tensors, HEADS)


def _first(tensors: Mapping[str, Tensor], endings: tuple[str, ...]) -> Matrix | None:
    for name, tensor in tensors.items():
        plain = tensor.dtype in PLAIN and len(tensor.shape) == 2
        if (
            any(name == end or name.endswith(f".{end}") for end in endings)
            and plain
            and tensor.whole
            and tensor.size
        ):
            return Matrix(tensor)
    return None
