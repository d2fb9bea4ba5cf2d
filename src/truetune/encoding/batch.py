"""Batch: some rows of the data, rendered, encoded and labelled, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.fingerprint import Fingerprints, fingerprints
from truetune.render.rendering import Rendering


class Example(NamedTuple):
    """One training example: a row, or one turn of it."""

    row: Conversation
    rendering: Rendering


class Rejected(NamedTuple):
    """A row that could not be rendered."""

    row: Conversation
    reason: str


@dataclass(frozen=True)
class Batch:
    """Rows in file order, and the tokens of their examples laid end to end.

    `ids[offsets[i]:offsets[i+1]]` are the tokens of `examples[i]`; `source`, `supervised` and
    `starts` are parallel to `ids`.
    """

    rows: list[Conversation]
    examples: list[Example]
    rejected: list[Rejected]
    ids: NDArray[np.int32]
    """(tokens,)"""
    offsets: NDArray[np.int64]
    """(examples + 1,)"""
    source: NDArray[np.uint8]
    """(tokens,) values of Source; a stop token that ends a trained turn is STOP, the BOS that opens an example BOS."""
    supervised: NDArray[np.bool_]
    """(tokens,)"""
    starts: NDArray[np.int32]
    """(tokens,) the character of the example's text that holds the token's first byte."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(examples,) in tokens."""
        return np.diff(self.offsets)

    def per_example(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the true entries of a token mask in each example: (tokens,) -> (examples,)."""
        total = np.concatenate(([0], np.cumsum(mask)))
        return np.asarray(total[self.offsets[1:]] - total[self.offsets[:-1]], dtype=np.int64)

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """Of each row, for finding duplicates and neighbours."""
        last = {example.row.origin.row: i for i, example in enumerate(self.examples)}
        return fingerprints(
            self.rows, [last.get(row.origin.row) for row in self.rows], self.ids, self.offsets, self.source
        )
