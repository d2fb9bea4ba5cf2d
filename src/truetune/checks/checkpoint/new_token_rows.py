"""Finds the tokens that a checkpoint has and its base has not, and the rows of the embedding that
they need.

Both tokenizers and both embeddings are read, rows only as far as they are asked for. The pad token is left out: nothing
is learned of it, so that its row may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.adapter_tensor_names import parse_adapter_tensors
from truetune.checkpoint.find_input_embedding_and_output_head import (
    EMBEDDING_NAMES,
    TokenMatrix,
    find_embedding,
)
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN

# Rows whose norms stand for all: their median is known to some percent, and reading more would take longer than the
# rest.
SAMPLED_ROWS = 1000
# Of the median norm of ordinary rows. Chosen, not measured: rows that were drawn by chance have a tenth of it and more.
# Anything from 1e-6 to 1e-2 tells the same rows apart.
TINY_SHARE_OF_NORM = 1e-3


@dataclass(frozen=True)
class NewTokens:
    """New tokens, the pad token left out: it needs no trained row."""

    ids: dict[str, int]
    base_size: int
    """Tokens of the base"""
    base_rows: TokenMatrix | None
    """The base's embedding"""
    rows: TokenMatrix | None
    """The checkpoint's embedding; None in an adapter that does not hold one"""

    def token_with_id(self, id: int) -> str:
        """The token and its id, as a message shows them."""
        return f"{next(text for text, other in self.ids.items() if other == id)} ({id:,})"

    def median_base_row_norm(self) -> float:
        """The median norm of a sample of rows that the base's tokens have; 0 where there is no embedding."""
        matrix = self.rows or self.base_rows
        if matrix is None:
            return 0.0
        places = np.linspace(0, min(self.base_size, len(matrix)) - 1, num=SAMPLED_ROWS)
        ids = np.unique(places.astype(np.int64))
        return float(np.median(np.linalg.norm(matrix.rows(ids), axis=1)))

    def ids_with_row_in(self, matrix: TokenMatrix | None) -> NDArray[np.int64]:
        """The new ids that have a row in a matrix, in order; none without a matrix."""
        ids = sorted(id for id in self.ids.values() if matrix and 0 <= id < len(matrix))
        return np.array(ids, dtype=np.int64)


def find_new_tokens(checkpoint: Checkpoint) -> NewTokens | None:
    """The new tokens; None where there are none, or where it can't be told."""
    new, base = checkpoint.new_tokens, checkpoint.base
    if base is None or checkpoint.faults or new is None:
        return None
    pad = checkpoint.tokenizer_config.get("pad_token")
    # Older files spell a token as a dictionary of its settings.
    pad = pad.get("content") if isinstance(pad, dict) else pad
    ids = {text: id for text, id in new.ids.items() if text != pad}
    if not ids:
        return None
    return NewTokens(
        ids, new.base_size, find_embedding(base.tensors), find_embedding(checkpoint.tensors)
    )


def ids_adapter_can_change(checkpoint: Checkpoint) -> set[int] | None:
    """The ids whose rows an adapter can change; None where that is all of them."""
    pieces = parse_adapter_tensors(checkpoint.tensors)
    embeddings = tuple(name.removesuffix(".weight") for name in EMBEDDING_NAMES)
    delta = "trainable_tokens_delta"
    if any(piece.module.endswith(embeddings) and piece.part != delta for piece in pieces):
        return None
    if not any(piece.part == delta for piece in pieces):
        return set()
    # A list for the embedding, or one for each of several modules.
    indices = checkpoint.adapter_config.get("trainable_token_indices")
    lists = list(indices.values()) if isinstance(indices, dict) else [indices]
    return {id for ids in lists if isinstance(ids, list) for id in ids if type(id) is int}


def explain_no_new_tokens(checkpoint: Checkpoint) -> Unmet:
    """Why there are no new tokens to look at."""
    if checkpoint.faults:
        return BROKEN
    if checkpoint.new_tokens is None:
        return Unmet(
            "its tokenizer and that of the base are not both there",
            "put tokenizer.json beside the weights",
        )
    return Unmet("its tokenizer has no token that the base's lacks")
