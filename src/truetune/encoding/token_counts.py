"""Counts tokens by where they came from and by whether they are learned, in a ledger.

The table that shows a wrong mask at a glance: supervised user tokens, or stop tokens that are not. One bincount over
both at once, since it runs over every token that is encoded; ledgers of shards are added cell by cell.
"""

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
        """How many tokens are supervised."""
        return int(self.counts[:, 1].sum())

    @property
    def total(self) -> int:
        """How many tokens there are."""
        return int(self.counts.sum())

    def rows(self) -> list[tuple[Source, int, int]]:
        """(source, supervised, context) of each source that occurs."""
        return [
            (s, int(self.counts[s, 1]), int(self.counts[s, 0]))
            for s in Source
            if self.counts[s].any()
        ]


def count_tokens(source: NDArray[np.uint8], supervised: NDArray[np.bool_]) -> Ledger:
    """The ledger of some tokens.

    Args:
        source: (tokens,) values of Source.
        supervised: (tokens,) are they learned?
    """
    # Cell 2 s + 1 is "source s, supervised". Source has 12 values, so that uint8 holds it.
    cells = source * np.uint8(2) + supervised
    return Ledger(np.bincount(cells, minlength=2 * len(Source)).reshape(len(Source), 2))
