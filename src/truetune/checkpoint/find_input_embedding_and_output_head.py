"""Finds the input embedding and the output head among the tensors of a checkpoint, by the names that models use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32

EMBEDDING_NAMES = (
    "embed_tokens.weight",
    "wte.weight",
    "embed_in.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
)
# Of Llama and its like, GPT-NeoX, and Megatron; a model with tied weights has none of them.
HEAD_NAMES = ("lm_head.weight", "embed_out.weight", "output_layer.weight")


class TokenMatrix(NamedTuple):
    """A matrix with one row for each token."""

    tensor: StoredTensor

    def __len__(self) -> int:
        return self.tensor.shape[0]

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows of some tokens, (ids, width)."""
        return to_float32(map_tensor_into_memory(self.tensor)[ids], self.tensor.dtype)


def find_embedding(tensors: Mapping[str, StoredTensor]) -> TokenMatrix | None:
    """The input embedding; None where there is none that can be read."""
    return _find_matrix_by_name(tensors, EMBEDDING_NAMES)


def find_output_head(tensors: Mapping[str, StoredTensor]) -> TokenMatrix | None:
    """The output head, where it is a tensor of its own."""
    return _find_matrix_by_name(tensors, HEAD_NAMES)


def _find_matrix_by_name(
    tensors: Mapping[str, StoredTensor], endings: tuple[str, ...]
) -> TokenMatrix | None:
    """The first matrix of such a name that is whole and can be read; None where there is none."""
    for name, tensor in tensors.items():
        plain = tensor.dtype in NUMPY_TYPES and len(tensor.shape) == 2
        if (
            any(name == end or name.endswith(f".{end}") for end in endings)
            and plain
            and tensor.whole
            and tensor.size
        ):
            return TokenMatrix(tensor)
    return None
