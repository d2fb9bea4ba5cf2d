"""Ledger: tokens by where they came from, and by whether they are learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.render.rendering import Source


@dataclass(frozen=True, slots=True)
class Ledger:
    """Tokens by source and by whether they are supervised."""

    counts: NDArray[np.int64]
    """(len(Source), 2): context, supervised"""

    @property
    def supervised(self) -> int:
        return int(self.counts[:, 1].sum())

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def rows(self) -> list[tuple[Source, int, int]]:
        """(source, supervised, context) of each source that occurs."""
        return [
            (s, int(self.counts[s, 1]), int(self.counts[s, 0]))
            for s in Source
            if self.counts[s].any()
        ]


def count_tokens(source: NDArray[np.uint8], supervised: NDArray[np.bool_]) -> Ledger:
    """The ledger of some tokens: (tokens,), (tokens,)."""
    cells = source * np.uint8(2) + supervised
    return Ledger(np.bincount(cells, minlength=2 * len(Source)).reshape(len(Source), 2))
