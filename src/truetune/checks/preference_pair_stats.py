"""Figures of preference pairs and verdicts: how long both sides are, what they share, and by how
much the chosen one scores higher.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checks.find_near_copies import GrowingArray
from truetune.checks.histogram import add_counts, count_in_bins, histogram_edges, quantile_of_counts
from truetune.encoding.batch import Batch, Pairs

# Chosen to read: tenths for shares, and 16 bars of margins for a terminal of 80 columns.
SHARED_BINS = 10
MARGIN_BINS = 16


class PairStats:
    """The lengths, common beginnings and score margins of pairs and of rows with a verdict, over all batches.

    Answers are measured in supervised tokens. Memory grows by 4 bytes a pair that has scores.
    """

    def __init__(self) -> None:
        self.lengths = {
            name: np.zeros(1, dtype=np.int64) for name in ("chosen", "rejected", "true", "false")
        }
        """Answers by how long they are"""
        self.longer = self.shorter = self.same = self.identical = 0
        self.shared: NDArray[np.int64] = np.zeros(SHARED_BINS + 1, dtype=np.int64)
        """Pairs by the share of the shorter answer that both begin with, in tenths"""
        self.margins = GrowingArray()

    def add(self, batch: Batch, supervised: NDArray[np.int64]) -> None:
        """Count the pairs, verdicts and scores of one more batch.

        Args:
            supervised: (examples,) supervised tokens of each.
        """
        if batch.pairs is not None:
            self._add_pairs(batch.pairs)
        labels = [example.row.label for example in batch.examples]
        if any(label is not None for label in labels):
            for name, value in (("true", True), ("false", False)):
                self._add_lengths(name, supervised[[label is value for label in labels]])
        margins = [row.scores[0] - row.scores[1] for row in batch.rows if row.scores is not None]
        if margins:
            self.margins.add(np.array(margins, dtype=np.float32))

    def _add_pairs(self, pairs: Pairs) -> None:
        """Count the pairs of a batch."""
        chosen, rejected = (side.count_true_per_example(side.supervised) for side in pairs)
        self._add_lengths("chosen", chosen)
        self._add_lengths("rejected", rejected)
        self.longer += int((chosen > rejected).sum())
        self.shorter += int((chosen < rejected).sum())
        self.same += int((chosen == rejected).sum())
        common, shorter, longer = measure_common_beginnings_and_lengths(pairs)
        # Identical where the common beginning is the longer answer: both then end there.
        self.identical += int((common == longer).sum())
        self.shared += np.bincount(
            SHARED_BINS * common // np.maximum(shorter, 1), minlength=SHARED_BINS + 1
        )

    def _add_lengths(self, name: str, lengths: NDArray[np.int64]) -> None:
        """Add lengths to those of a side."""
        self.lengths[name] = add_counts(self.lengths[name], np.bincount(lengths, minlength=1))

    def report_data(self) -> dict[str, Any]:
        """`pairs` and `labels`, plain values, where there are such rows."""
        data: dict[str, Any] = {}
        count = self.longer + self.shorter + self.same
        if count:
            data["pairs"] = {
                "count": count, "longer": self.longer, "shorter": self.shorter, "same_length": self.same,
                "identical": self.identical, "shared": self.shared.tolist(),
                **self._length_histograms_of_sides("chosen", "rejected"),
                **({"margins": _score_margin_histogram(self.margins.whole())} if self.margins.parts else {}),
            }  # fmt: skip
        if self.lengths["true"].any() or self.lengths["false"].any():
            data["labels"] = self._length_histograms_of_sides("true", "false")
        return data

    def _length_histograms_of_sides(self, *names: str) -> dict[str, Any]:
        """The lengths of these sides in bins that both share."""
        both = add_counts(*(self.lengths[name] for name in names))
        # The 99th percentile: one answer of 100,000 tokens would leave all others in the first bin.
        at = histogram_edges(quantile_of_counts(both, 0.99), int(np.flatnonzero(both)[-1]))
        return {"edges": at.tolist()} | {
            name: {
                "count": int(counts.sum()),
                "median": quantile_of_counts(counts, 0.5),
                "p95": quantile_of_counts(counts, 0.95),
                "counts": count_in_bins(counts, at).tolist(),
            }
            for name in names
            for counts in (self.lengths[name],)
        }


def measure_common_beginnings_and_lengths(
    pairs: Pairs,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(pairs,) each: tokens that both answers begin with, tokens of the shorter answer, and of the longer.

    An answer is what follows the context."""
    starts = [side.offsets[:-1] + side.contexts for side in pairs]
    lengths = [side.offsets[1:] - start for side, start in zip(pairs, starts, strict=True)]
    shorter, longer = np.minimum(*lengths), np.maximum(*lengths)
    # Both answers of all pairs are laid out in one array each, as long as the shorter ones, and compared at once, in
    # place of a loop over pairs.
    begins = np.cumsum(shorter) - shorter
    inside = np.arange(int(shorter.sum())) - np.repeat(begins, shorter)
    chosen, rejected = (
        side.ids[np.repeat(start, shorter) + inside]
        for side, start in zip(pairs, starts, strict=True)
    )
    # The end of the array stands for "nowhere": searchsorted then finds a place for each pair.
    differ = np.append(np.flatnonzero(chosen != rejected), len(inside))
    first = differ[np.searchsorted(differ, begins)]
    return np.minimum(first - begins, shorter), shorter, longer


def _score_margin_histogram(values: NDArray[np.float32]) -> dict[str, Any]:
    """A histogram of the score margins of pairs: chosen less rejected.

    The outermost hundredths are in the last bins.
    """
    # The outermost hundredths: scores are often free numbers, of which one may be a thousand times the others.
    low, high = (float(np.quantile(values, share)) for share in (0.01, 0.99))
    counts, at = np.histogram(
        np.clip(values, low, high), bins=MARGIN_BINS, range=(low, high) if low < high else None
    )
    return {
        "count": len(values),
        "median": float(np.median(values)),
        "negative": int((values < 0).sum()),
        "zero": int((values == 0).sum()),
        "counts": counts.tolist(),
        "edges": [round(float(edge), 6) for edge in at],
    }
