"""Counts the figures of a run's data over all batches, which a report shows beside the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checks.data_file_contents_by_stretch import FileTimeline
from truetune.checks.histogram import add_counts, count_in_bins, histogram_edges, quantile_of_counts
from truetune.checks.preference_pair_stats import PairStats
from truetune.checks.reports import Lengths
from truetune.data.count_media import Media
from truetune.encoding.batch import Batch
from truetune.encoding.token_counts import Ledger, count_tokens
from truetune.render.rendering import Source

# Chosen, not measured: a share of 5 % is one bar of the chart.
LEARNED_SHARE_BINS = 20


class DataStats:
    """Memory grows with the longest example, not with their number."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.rows = self.examples = self.rejected = self.unsupervised = 0
        self.formats: Counter[str] = Counter()
        self.templates: Counter[str] = Counter()
        """Rows by the name of the chat template that rendered them"""
        self.sources: NDArray[np.int64] = np.zeros((len(Source), 2), dtype=np.int64)
        self.by_length: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.learned: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        """Supervised tokens by the length of their example"""
        self.shares: NDArray[np.int64] = np.zeros(LEARNED_SHARE_BINS + 1, dtype=np.int64)
        """Examples by the share of their tokens that is supervised, in twentieths"""
        self.lost_supervised = 0
        self.media = Media()
        self.along, self.pairing = FileTimeline(), PairStats()

    def add(self, batch: Batch) -> None:
        """Count the next batch."""
        supervised = batch.count_true_per_example(batch.supervised)
        self.rows += len(batch.rows)
        self.examples += len(batch.examples)
        self.rejected += len(batch.rejected)
        self.media += batch.media
        self.formats.update(row.format for row in batch.rows)
        self.templates.update(_template_name_of_each_row(batch))
        self.sources += count_tokens(batch.source, batch.supervised).counts
        self.unsupervised += int((supervised == 0).sum())
        self.by_length = add_counts(self.by_length, np.bincount(batch.lengths, minlength=1))
        self.learned = add_counts(
            self.learned, np.bincount(batch.lengths, supervised, minlength=1).astype(np.int64)
        )
        self.shares += np.bincount(
            LEARNED_SHARE_BINS * supervised // np.maximum(batch.lengths, 1),
            minlength=LEARNED_SHARE_BINS + 1,
        )
        if self.limit is not None:
            behind = (
                np.arange(len(batch.ids)) - np.repeat(batch.offsets[:-1], batch.lengths)
                >= self.limit
            )
            self.lost_supervised += int((behind & batch.supervised).sum())
        self.along.add(batch, supervised)
        self.pairing.add(batch, supervised)

    def ledger(self) -> Ledger:
        """The counts of tokens by source, in the loss and not."""
        return Ledger(self.sources.copy())

    def lengths(self) -> Lengths:
        """How long the examples are, and how many tokens lie beyond the length limit."""
        counts, limit = self.by_length, self.limit
        longest = int(np.flatnonzero(counts)[-1]) if counts.any() else 0
        # The 99th percentile: see histogram.
        at = histogram_edges(quantile_of_counts(counts, 0.99), longest)
        behind = counts[limit + 1 :] if limit is not None else counts[:0]
        return Lengths(
            counts=count_in_bins(counts, at),
            edges=at,
            median=quantile_of_counts(counts, 0.5),
            p95=quantile_of_counts(counts, 0.95),
            longest=longest,
            limit=limit,
            over=int(behind.sum()),
            # An example of limit + k tokens loses k of them.
            lost_tokens=int((behind * np.arange(1, len(behind) + 1)).sum()),
            lost_supervised=self.lost_supervised,
            media=self.media,
        )

    def report_data(self, lengths: Lengths) -> dict[str, Any]:
        """Shares, order and pairs, as plain values for the report's `data`."""
        tokens = self.by_length * np.arange(len(self.by_length))
        shares = {
            "counts": [self.shares[0].item() - self.unsupervised, *self.shares[1:-1].tolist()],
            "none": self.unsupervised,
            "all": self.shares[-1].item(),
            "tokens": count_in_bins(tokens, lengths.edges).tolist(),
            "supervised": count_in_bins(self.learned, lengths.edges).tolist(),
        }
        return {"shares": shares, "order": self.along.report_data(), **self.pairing.report_data()}


def _template_name_of_each_row(batch: Batch) -> Iterator[str]:
    """For each row with an example, the name of the chat template that rendered it; none of plain text."""
    # By row, for a row may have an example for each of its turns.
    names = {example.row.origin.row: example.rendering.template for example in batch.examples}
    return (name for name in names.values() if name is not None)
