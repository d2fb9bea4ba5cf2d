"""Tally: the counts over all batches that a report shows beside the findings."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from truetune.checks.report import Lengths
from truetune.encoding.batch import Batch
from truetune.encoding.ledger import Ledger, ledger
from truetune.render.rendering import Source

BINS = 12


class Tally:
    """Memory grows with the longest example, not with their number."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.rows = self.examples = self.rejected = self.unsupervised = 0
        self.formats: Counter[str] = Counter()
        self.sources: NDArray[np.int64] = np.zeros((len(Source), 2), dtype=np.int64)
        self.by_length: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.lost_supervised = 0

    def add(self, batch: Batch) -> None:
        self.rows += len(batch.rows)
        self.examples += len(batch.examples)
        self.rejected += len(batch.rejected)
        self.formats.update(row.format for row in batch.rows)
        self.sources += ledger(batch.source, batch.supervised).counts
        self.unsupervised += int((batch.per_example(batch.supervised) == 0).sum())
        counts = np.bincount(batch.lengths, minlength=len(self.by_length))
        counts[: len(self.by_length)] += self.by_length
        self.by_length = counts
        if self.limit is not None:
            behind = np.arange(len(batch.ids)) - np.repeat(batch.offsets[:-1], batch.lengths) >= self.limit
            self.lost_supervised += int((behind & batch.supervised).sum())

    def ledger(self) -> Ledger:
        return Ledger(self.sources.copy())

    def lengths(self) -> Lengths:
        counts = self.by_length
        longest = int(np.flatnonzero(counts)[-1]) if counts.any() else 0
        edges = _edges(self._quantile(0.99), longest)
        totals = np.concatenate(([0], np.cumsum(counts)))
        binned = np.diff(totals[np.minimum(edges, len(counts))])
        limit = self.limit
        behind = counts[limit + 1 :] if limit is not None else counts[:0]
        return Lengths(
            counts=binned,
            edges=edges,
            median=self._quantile(0.5),
            p95=self._quantile(0.95),
            longest=longest,
            limit=limit,
            over=int(behind.sum()),
            lost_tokens=int((behind * np.arange(1, len(behind) + 1)).sum()),
            lost_supervised=self.lost_supervised,
        )

    def _quantile(self, share: float) -> int:
        total = self.by_length.sum()
        return int(np.searchsorted(np.cumsum(self.by_length), share * total)) if total else 0


def _edges(nearly_longest: int, longest: int) -> NDArray[np.int64]:
    """Bins of one round width up to the 99th percentile, and one more for the rest."""
    width = _round_up(max(1, -(-(nearly_longest + 1) // BINS)))
    edges = list(range(0, nearly_longest + width + 1, width))
    if edges[-1] <= longest:
        edges.append(longest + 1)
    return np.array(edges, dtype=np.int64)


def _round_up(value: int) -> int:
    scale = 1
    while True:
        for step in (1, 2, 5):
            if value <= step * scale:
                return step * scale
        scale *= 10
