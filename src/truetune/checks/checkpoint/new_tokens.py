"""Tokens that a checkpoint has and its base has not, and the rows of the embedding that they need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.adapter_tensor_names import parse_adapter_tensors
from truetune.checkpoint.embedding_matrices import EMBEDDING_NAMES, TokenMatrix, find_embedding
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.judgement import Unmet
from truetune.checks.unmet_reasons import BROKEN

SAMPLE = 1000
TINY = 1e-3
"""Of the median norm of ordinary rows"""


@dataclass(frozen=True)
class Added:
    """New tokens, the pad token left out: it needs no trained row."""

    ids: dict[str, int]
    base_size: int
    """Tokens of the base"""
    base_rows: TokenMatrix | None
    """The base's embedding"""
    rows: TokenMatrix | None
    """The checkpoint's embedding; None in an adapter that does not hold one"""

    def spelled(self, id: int) -> str:
        return f"{next(text for text, other in self.ids.items() if other == id)} ({id:,})"

    def median(self) -> float:
        """Of the norms of a sample of rows that the base's tokens have"""
        matrix = self.rows or self.base_rows
        if matrix is None:
            return 0.0
        ids = np.unique(
            np.linspace(0, min(self.base_size, len(matrix)) - 1, num=SAMPLE).astype(np.int64)
        )
        return float(np.median(np.linalg.norm(matrix.rows(ids), axis=1)))

    def in_rows(self, matrix: TokenMatrix | None) -> NDArray[np.int64]:
        """The new ids that have a row there"""
        return np.array(
            sorted(i for i in self.ids.values() if matrix and 0 <= i < len(matrix)), dtype=np.int64
        )


def added(found: Checkpoint) -> Added | None:
    """The new tokens; None where there are none, or where it can't be told."""
    made = found.new_tokens
    if found.base is None or found.faults or made is None:
        return None
    pad = found.tokenizer_config.get("pad_token")
    pad = pad.get("content") if isinstance(pad, dict) else pad
    ids = {text: id for text, id in made.ids.items() if text != pad}
    if not ids:
        return None
    return Added(
        ids, made.base_size, find_embedding(found.base.tensors), find_embedding(found.tensors)
    )


def trained_ids(found: Checkpoint) -> set[int] | None:
    """The ids whose rows an adapter can change; None where that is all of them."""
    names = parse_adapter_tensors(found.tensors)
    into = tuple(name.removesuffix(".weight") for name in EMBEDDING_NAMES)
    if any(name.module.endswith(into) and name.part != "trainable_tokens_delta" for name in names):
        return None
    chosen = found.adapter_config.get("trainable_token_indices")
    listed = list(chosen.values()) if isinstance(chosen, dict) else [chosen]
    there = any(name.part == "trainable_tokens_delta" for name in names)
    return (
        {id for ids in listed if isinstance(ids, list) for id in ids if type(id) is int}
        if there
        else set()
    )


def why_none(found: Checkpoint) -> Unmet:
    """Why there are no new tokens to look at."""
    if found.faults:
        return BROKEN
    if found.new_tokens is None:
        return Unmet(
            "its tokenizer and that of the base are not both there",
            "put tokenizer.json beside the weights",
        )
    return Unmet("its tokenizer has no token that the base's lacks")
