"""Estimates how much of the batches of a run is padding, by the lengths of its rows.

How it works: a collator pads each row to the longest of its batch. In batches that are drawn at random, the expected
longest row has a formula: of n rows sorted by length, the i-th is the longest of a batch of b in
C(i - 1, b - 1) / C(n, b) of all batches. What is over the mean length is padding.

The trade-off: without a tokenizer, lengths are estimated by characters. Sizes are off by a third then; shares are not,
because all rows are off alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2
from typing import NamedTuple

CHARACTERS_PER_TOKEN = 4
"""Of English text; text with code or of other languages has fewer"""
TEMPLATE_TOKENS = 16
"""For the headers of a chat template, which are in no row of the file. Chosen, not measured"""
# All below are chosen, not measured, for the reasons beside them.
MIN_ROWS = 50
"""Fewer rows say little of the data, and are trained in minutes"""
MIN_SHARE, LARGE_SHARE = 0.6, 0.75
"""Of pads in a batch. Instruction data of even lengths has 30 to 60 % in batches of 8"""
MIN_TOKENS_OF_BATCH = 8192
"""Tokens of a batch with its pads, below which a GPU waits for other things"""
MAX_TAIL = 0.1
"""The share of the rows that are called the few long ones: of more, the data are long and short, and none is dropped"""
MIN_TAIL_TIMES = 4
"""Times the median from which on a row is a long one: twice the median is common in any data"""


class PaddedBatches(NamedTuple):
    """What batches of so many rows hold."""

    rows: int
    batch: int
    share: float
    """Of their tokens that are pads"""
    median: int
    longest: int
    expected: int
    """Tokens of the longest row of a batch, on average"""
    long_rows: int
    """The few rows that cause it; 0 where it is no few rows"""
    long_from: int
    """The length of the shortest of them"""

    @property
    def is_waste(self) -> bool:
        """Is most of a batch padding, of a size that costs time?"""
        return self.share > MIN_SHARE and self.expected * self.batch >= MIN_TOKENS_OF_BATCH


def estimate_tokens(characters: Iterable[int]) -> list[int]:
    """About how many tokens rows of so many characters have."""
    return [one // CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS for one in characters]


def estimate_padded_batches(
    lengths: Sequence[int], batch: int, limit: int | None
) -> PaddedBatches | None:
    """What random batches of these rows hold; None where the rows are too few to tell.

    Args:
        lengths: Tokens of each row.
        batch: Rows in one forward pass.
        limit: Tokens to which a longer row is cut.
    """
    if len(lengths) < MIN_ROWS or batch < 2:
        return None
    cut = sorted(min(one, limit) if limit else one for one in lengths)
    batch = min(batch, len(cut))
    median = cut[len(cut) // 2]
    tail = [one for one in cut if one > MIN_TAIL_TIMES * median]
    is_few = 0 < len(tail) <= MAX_TAIL * len(cut)
    expected = _mean_longest_row_of_batches(cut, batch)
    share = 1 - sum(cut) / len(cut) / expected if expected else 0.0
    return PaddedBatches(
        len(cut),
        batch,
        share,
        median,
        cut[-1],
        round(expected),
        len(tail) if is_few else 0,
        tail[0] if is_few else 0,
    )


def _mean_longest_row_of_batches(lengths: Sequence[int], batch: int) -> float:
    """The mean of the longest row over all batches, of sorted lengths."""
    count = len(lengths)
    # From the longest row down, so that no binomial of large numbers is needed.
    left, expected = 1.0, 0.0
    for place in range(count, batch - 1, -1):
        # Of the batches that hold none of the longer rows, those that hold this one.
        part = left * batch / place
        expected += part * lengths[place - 1]
        left -= part
    return expected


def describe_padding(padded: PaddedBatches) -> str:
    """The share with the lengths that cause it."""
    expected, median, longest = map(
        _round_to_two_digits, (padded.expected, padded.median, padded.longest)
    )
    return (
        f"about {padded.share:.0%} of each batch is padding: the longest of {padded.batch} rows has about"
        f" {expected:,} tokens on average, the median row {median:,} (the longest of all {longest:,})"
    )


def advise_on_few_long_rows(padded: PaddedBatches) -> str:
    """The remedy by the few long rows; empty where it is no few."""
    if not padded.long_rows:
        return ""
    share = padded.long_rows / padded.rows
    shortest = _round_to_two_digits(padded.long_from)
    return (
        f"; or drop, truncate or split the {padded.long_rows:,} rows ({share:.0%}) with about {shortest:,} tokens or"
        " more"
    )


def _round_to_two_digits(tokens: int) -> int:
    """An estimate, with two digits that mean something."""
    if tokens < 1:
        return tokens
    digits = max(0, int(log2(tokens) / 3.33) - 1)
    return int(round(tokens, -digits))
