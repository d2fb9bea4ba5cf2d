"""Confidence intervals and tests over rows: shares, means, and differences of two models on the same rows.

A row, never a token, is what is drawn: the tokens of one row are not independent, and an interval over them would be
too narrow. Wilson's interval (1927) is for shares, the bias-corrected and accelerated bootstrap (Efron 1987) for means,
McNemar's exact test and Fisher's sign-flip test for differences. The trade-off: all of them need no assumption on how
values are spread, and cost a few thousand draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, fsum, isfinite, lgamma, log, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# The usual choice (Davison & Hinkley 1997): with the data itself 5,000 equally likely outcomes, so that p has a
# resolution of 0.0002. A quarter would move the ends of a 95 % interval visibly from seed to seed.
BOOTSTRAP_ROUNDS = 4999
# Chosen, not measured: 2 MB of 8-byte numbers, whatever the count of rows. All draws of 100,000 rows at once
# would be 4 GB.
MAX_HELD_NUMBERS = 1 << 18
"""Random numbers that are held at a time"""
# 2^12 = 4,096 sign patterns, fewer than would be drawn: trying all is then exact and no dearer.
MAX_ENUMERATED_ROWS = 12
"""Rows up to which all signs are tried"""
NORMAL = NormalDist()
Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean and where it lies with the confidence asked for; None where that can't be told: of one row, or where a
    value is no finite number."""

    mean: float
    low: float | None
    high: float | None


class PairedDifference(NamedTuple):
    """A difference of means over the same rows."""

    difference: float
    low: float | None
    high: float | None
    p: float
    """Two-sided; of no difference in any row's sign"""


def wilson_interval(good: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Where the true share lies, by Wilson's score interval.

    Args:
        good: how many have the property.
        of: of how many.
        confidence: of the interval.

    Returns:
        (low, high); (0, 1) of none.

    Raises:
        ValueError: more are good than there are.
    """
    if not 0 <= good <= of:
        raise ValueError(f"{good} of {of}")
    if not of:
        return 0.0, 1.0
    z = NORMAL.inv_cdf((1 + confidence) / 2)
    share = good / of
    middle = share + z * z / (2 * of)
    spread = z * sqrt(share * (1 - share) / of + (z / (2 * of)) ** 2)
    scale = 1 + z * z / of
    low, high = (middle - spread) / scale, (middle + spread) / scale
    # Exact at the ends, where rounding leaves 1e-17 instead of 0.
    return (max(0.0, low) if good else 0.0), (min(1.0, high) if good < of else 1.0)


def bootstrap_mean(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    rounds: int = BOOTSTRAP_ROUNDS,
) -> Interval:
    """sum(values) / sum(weights), with its BCa interval over rows that are drawn again.

    Args:
        values: (n,) the sum of each row.
        weights: (n,) what each row counts, 1 by default; rows that count nothing are left out.
        seed: of the draws.
        confidence: of the interval.
        rounds: draws.

    Raises:
        ValueError: no row is left.
    """
    sums, counts = _drop_rows_of_zero_weight(values, weights)
    mean = float(sums.sum() / counts.sum())
    if len(sums) < 2 or not isfinite(mean):
        return Interval(mean, None, None)
    # Sums and counts of a row are drawn together: long rows weigh as much in each draw as in the mean.
    resampled = np.concatenate(
        [sums[rows].sum(1) / counts[rows].sum(1) for rows in _draw_rows(len(sums), rounds, seed)]
    )
    resampled.sort()
    without_row = (sums.sum() - sums) / (counts.sum() - counts)
    influence = without_row.mean() - without_row
    low, high = np.quantile(resampled, _bca_levels(resampled, mean, influence, confidence))
    return Interval(mean, float(low), float(high))


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Two-sided p of equal chances, given how many rows only one of two got right (exact binomial)."""
    of = only_a + only_b
    # In logarithms: the binomial coefficient of 2,000 rows is no float.
    logs = (
        lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1) - of * log(2)
        for k in range(min(only_a, only_b) + 1)
    )
    return min(1.0, 2 * fsum(map(exp, logs)))


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    rounds: int = BOOTSTRAP_ROUNDS,
) -> PairedDifference:
    """(sum(a) - sum(b)) / sum(weights) over the same rows: a paired bootstrap, and a test that flips rows' signs.

    Args:
        a: (n,) the sum of each row, of one model.
        b: (n,) the same of the other.
        weights: (n,) what each row counts, 1 by default.
        seed: of the draws.
        confidence: of the interval.
        rounds: draws; all signs are tried where there are few rows.

    Raises:
        ValueError: no row is left.
    """
    change, counts = _drop_rows_of_zero_weight(
        np.asarray(a, np.float64) - np.asarray(b, np.float64), weights
    )
    mean, low, high = bootstrap_mean(
        change, counts, seed=seed, confidence=confidence, rounds=rounds
    )
    if not isfinite(mean):
        return PairedDifference(mean, None, None, nan)
    # A sum of the same numbers in another order may be smaller by a rounding error, and is as extreme.
    threshold = abs(change.sum()) * (1 - 1e-9)
    total = extreme = 0
    # Another seed than the bootstrap's: the two would else share their random numbers.
    for signs in _draw_signs(len(change), rounds, seed + 1):
        total += len(signs)
        extreme += int((np.abs(signs @ change) >= threshold).sum())
    if len(change) > MAX_ENUMERATED_ROWS:
        # The data itself is one of the outcomes: without it p could be 0 (Phipson & Smyth 2010).
        total, extreme = total + 1, extreme + 1
    return PairedDifference(mean, low, high, extreme / total)


def _drop_rows_of_zero_weight(
    values: ArrayLike, weights: ArrayLike | None
) -> tuple[Floats, Floats]:
    """The values and weights of the rows whose weight is above 0. Raises ValueError where there is none."""
    sums = np.asarray(values, np.float64)
    counts = np.ones_like(sums) if weights is None else np.asarray(weights, np.float64)
    sums, counts = sums[counts > 0], counts[counts > 0]
    if not len(sums):
        raise ValueError("no row")
    return sums, counts


def _draw_rows(rows: int, rounds: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """(rounds of a chunk, rows): which rows are drawn."""
    random = np.random.default_rng(seed)
    chunk_rounds = max(1, MAX_HELD_NUMBERS // rows)
    for start in range(0, rounds, chunk_rounds):
        yield random.integers(rows, size=(min(chunk_rounds, rounds - start), rows))


def _draw_signs(rows: int, rounds: int, seed: int) -> Iterator[Floats]:
    """(rounds of a chunk, rows) of -1 and 1: every pattern of few rows, else drawn ones."""
    if rows <= MAX_ENUMERATED_ROWS:
        # Bit k of a number from 0 to 2^rows - 1 is the sign of row k.
        yield np.where(np.arange(1 << rows)[:, None] >> np.arange(rows) & 1, -1.0, 1.0)
        return
    random = np.random.default_rng(seed)
    chunk_rounds = max(1, MAX_HELD_NUMBERS // rows)
    for start in range(0, rounds, chunk_rounds):
        bits = random.integers(2, size=(min(chunk_rounds, rounds - start), rows))
        yield np.where(bits, -1.0, 1.0)


def _bca_levels(
    resampled: Floats, mean: float, influence: Floats, confidence: float
) -> Sequence[float]:
    """The quantiles of the resampled means that bound the interval (Efron & Tibshirani 1993, 14.9-14.15).

    Args:
        resampled: (rounds,) sorted.
        mean: of the rows themselves.
        influence: (rows,) what each row does to the mean (jackknife).
        confidence: of the interval.
    """
    plain_levels = ((1 - confidence) / 2, (1 + confidence) / 2)
    # Ties count half: resamples of few or equal rows often give the very mean.
    left, right = (
        np.searchsorted(resampled, mean, "left"),
        np.searchsorted(resampled, mean, "right"),
    )
    below = float((left + right) / (2 * len(resampled)))
    if not 0 < below < 1:
        # All lie on one side: the correction would be infinite.
        return plain_levels
    bias, spread = NORMAL.inv_cdf(below), float((influence**2).sum())
    acceleration = float((influence**3).sum()) / (6 * spread**1.5) if spread else 0.0
    ends = (bias + NORMAL.inv_cdf(level) for level in plain_levels)
    return [NORMAL.cdf(bias + end / (1 - acceleration * end)) for end in ends]
