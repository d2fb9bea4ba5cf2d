"""Histograms of counts: numbers from 0 on, given by how often each occurs, in bins of a round width.

Counts instead of values: an array as long as the largest value holds any number of rows, and sums of two parts are
exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Chosen, not measured: twelve bars with their labels fit a terminal of 80 columns.
MAX_BINS = 12


def histogram_edges(nearly_longest: int, longest: int) -> NDArray[np.int64]:
    """Edges of bins of one round width up to `nearly_longest` (the 99th percentile), and one more
    bin for the rest.
    """
    # Rounded up: 12 bins of the width hold the longest, and -(-a // b) is the division that rounds up.
    width = _round_up_to_1_2_5(max(1, -(-(nearly_longest + 1) // MAX_BINS)))
    edges = list(range(0, nearly_longest + width + 1, width))
    if edges[-1] <= longest:
        edges.append(longest + 1)
    return np.array(edges, dtype=np.int64)


def quantile_of_counts(counts: NDArray[np.int64], share: float) -> int:
    """The quantile (`share`) of values from 0 on, given by how often each occurs."""
    total = counts.sum()
    return int(np.searchsorted(np.cumsum(counts), share * total)) if total else 0


def count_in_bins(counts: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many values lie in each bin; `at` are the edges of the bins."""
    totals = np.concatenate(([0], np.cumsum(counts)))
    return np.asarray(np.diff(totals[np.minimum(at, len(counts))]))


def add_counts(counts: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of two arrays of counts, as long as the longer."""
    longer, shorter = (counts, more) if len(counts) >= len(more) else (more, counts)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


def _round_up_to_1_2_5(value: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50, ...

    that is at least `value`: edges that a reader can add up.
    """
    scale = 1
    while True:
        for step in (1, 2, 5):
            if value <= step * scale:
                return step * scale
        scale *= 10
