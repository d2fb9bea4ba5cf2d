"""The timeline of a data file: what lies in each of about a hundred equal stretches of its rows.

It shows what a shuffle would hide: rows sorted by source or by length, and files joined one after the other. The number
of rows is not known before the last is read, so stretches double when there are too many of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

# Chosen to read: 64 to 127 stretches are as many columns as a wide terminal has.
MIN_STRETCHES = 64
"""Stretches of a file with at least as many rows; there are fewer than twice as many."""
# Chosen, not measured: far more than the sources of a mixture, far fewer than ids that differ in each row.
MAX_GROUPS = 200
"""A column with more values than this does not group rows."""
GROUPINGS: dict[str, Callable[[Conversation], str | None]] = {
    "source": lambda row: row.group,
    "label": lambda row: None if row.label is None else str(row.label).lower(),
    "file": lambda row: row.origin.file,
    "format": lambda row: row.format,
}
"""What rows are grouped by, the most telling first"""


class FileTimeline:
    """Memory does not grow with the number of rows: stretches become twice as long when they are too many."""

    def __init__(self) -> None:
        self.each = 1
        self.sums = np.zeros((2 * MIN_STRETCHES, 4), dtype=np.int64)
        """(stretches, 4): rows, examples, tokens, supervised tokens"""
        self.kinds: dict[str, dict[str, NDArray[np.int64]]] = {by: {} for by in GROUPINGS}
        """Rows of each kind by stretch"""

    def add(self, batch: Batch, supervised: NDArray[np.int64]) -> None:
        """Count the examples of a batch into the stretches of the timeline.

        `supervised`: (examples,) supervised tokens of each.
        """
        if not batch.rows:
            return
        # Doubling keeps all counts exact: two stretches of n rows are one of 2n.
        while batch.rows[-1].origin.row // self.each >= 2 * MIN_STRETCHES:
            self._double_stretch_length()
        rows = np.array([row.origin.row for row in batch.rows]) // self.each
        examples = (
            np.array([example.row.origin.row for example in batch.examples], dtype=np.int64)
            // self.each
        )
        for column, (places, values) in enumerate(
            ((rows, None), (examples, None), (examples, batch.lengths), (examples, supervised))
        ):
            self.sums[:, column] += np.bincount(places, values, minlength=2 * MIN_STRETCHES).astype(
                np.int64
            )
        for by, of in GROUPINGS.items():
            if by in self.kinds:
                self._count_values_by_stretch(by, [of(row) for row in batch.rows], rows)

    def _count_values_by_stretch(
        self, by: str, values: list[str | None], rows: NDArray[np.int64]
    ) -> None:
        """Count the rows of each value; a column with too many values is given up."""
        kinds, distinct = self.kinds[by], dict.fromkeys(values)
        for value in distinct:
            if value is None:
                continue
            # More values than MAX_GROUPS: the column groups nothing, and would grow with the file.
            if value not in kinds and len(kinds) == MAX_GROUPS:
                del self.kinds[by]
                return
            own_rows = rows if len(distinct) == 1 else rows[[other == value for other in values]]
            counted = kinds.setdefault(value, np.zeros(2 * MIN_STRETCHES, dtype=np.int64))
            counted += np.bincount(own_rows, minlength=2 * MIN_STRETCHES)

    def _double_stretch_length(self) -> None:
        """Make each stretch twice as long, so that there are half as many."""
        self.each *= 2
        self.sums = _sum_neighbours_in_pairs(self.sums)
        self.kinds = {
            by: {name: _sum_neighbours_in_pairs(counts) for name, counts in kinds.items()}
            for by, kinds in self.kinds.items()
        }

    def report_data(self) -> dict[str, Any]:
        """The timeline as plain values: counts by stretch, and kinds of the first column that tells rows apart."""
        count = int(np.flatnonzero(self.sums[:, 0])[-1]) + 1 if self.sums[:, 0].any() else 0
        names = ("rows", "examples", "tokens", "supervised")
        by = next((by for by in GROUPINGS if len(self.kinds.get(by, ())) > 1), None)
        return {
            "each": self.each,
            **{
                name: column[:count].tolist()
                for name, column in zip(names, self.sums.T, strict=True)
            },
            "by": by,
            "kinds": (
                {name: counts[:count].tolist() for name, counts in self.kinds[by].items()}
                if by
                else {}
            ),
        }


def _sum_neighbours_in_pairs(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add up each two neighbouring counts, and append zeros for as many again."""
    joined = counts.reshape(MIN_STRETCHES, 2, *counts.shape[1:]).sum(axis=1)
    return np.concatenate((joined, np.zeros_like(joined)))
