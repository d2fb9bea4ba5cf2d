"""Statistics: intervals and tests over rows; the tokens of one row are not independent.

Wilson (1927); bias-corrected and accelerated bootstrap (Efron 1987); McNemar's exact test; Fisher's sign-flip test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, fsum, isfinite, lgamma, log, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROUNDS = 4999
CELLS = 1 << 18
"""Random numbers that are held at a time"""
ENUMERATED = 12
"""Rows up to which all signs are tried"""
NORMAL = NormalDist()
Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean and where it lies with the confidence asked for; None where that can't be told: of one row, or where a
    value is no finite number."""

    mean: float
    low: float | None
    high: float | None


class Paired(NamedTuple):
    """A difference of means over the same rows."""

    difference: float
    low: float | None
    high: float | None
    p: float
    """Two-sided; of no difference in any row's sign"""


def wilson(good: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Where the true share lies; (0, 1) of none. Raises ValueError for more good ones than there are."""
    if not 0 <= good <= of:
        raise ValueError(f"{good} of {of}")
    if not of:
        return 0.0, 1.0
    z, share = NORMAL.inv_cdf((1 + confidence) / 2), good / of
    middle, spread = (
        share + z * z / (2 * of),
        z * sqrt(share * (1 - share) / of + (z / (2 * of)) ** 2),
    )
    low, high = ((middle + sign * spread) / (1 + z * z / of) for sign in (-1, 1))
    return (max(0.0, low) if good else 0.0), (min(1.0, high) if good < of else 1.0)


def bootstrap(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    rounds: int = ROUNDS,
) -> Interval:
    """sum(values) / sum(weights), with its BCa interval over rows that are drawn again.

    (n,) each, a row's sum and its count (1 by default); rows that count nothing are left out. Raises ValueError where
    none is left.
    """
    above, below = _counted(values, weights)
    mean = float(above.sum() / below.sum())
    if len(above) < 2 or not isfinite(mean):
        return Interval(mean, None, None)
    drawn = np.sort(
        np.concatenate(
            [above[at].sum(1) / below[at].sum(1) for at in _again(len(above), rounds, seed)]
        )
    )
    without = (above.sum() - above) / (below.sum() - below)
    low, high = np.quantile(drawn, _levels(drawn, mean, without.mean() - without, confidence))
    return Interval(mean, float(low), float(high))


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided p of equal chances, given how many rows only one of two got right (exact binomial)."""
    of = only_a + only_b
    logs = (
        lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1) - of * log(2)
        for k in range(min(only_a, only_b) + 1)
    )
    return min(1.0, 2 * fsum(map(exp, logs)))


def paired(
    a: ArrayLike,
    b: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    rounds: int = ROUNDS,
) -> Paired:
    """(sum(a) - sum(b)) / sum(weights) over the same rows: a paired bootstrap, and a test that flips rows' signs.

    (n,) each. All signs are tried where there are few rows, else `rounds`. Raises as `bootstrap`.
    """
    change, below = _counted(np.asarray(a, np.float64) - np.asarray(b, np.float64), weights)
    mean, low, high = bootstrap(change, below, seed=seed, confidence=confidence, rounds=rounds)
    if not isfinite(mean):
        return Paired(mean, None, None, nan)
    seen, total, extreme = abs(change.sum()) * (1 - 1e-9), 0, 0
    for signs in _signs(len(change), rounds, seed + 1):
        total += len(signs)
        extreme += int((np.abs(signs @ change) >= seen).sum())
    whole = len(change) <= ENUMERATED
    return Paired(mean, low, high, (extreme + (not whole)) / (total + (not whole)))


def _counted(values: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    above = np.asarray(values, np.float64)
    below = np.ones_like(above) if weights is None else np.asarray(weights, np.float64)
    above, below = above[below > 0], below[below > 0]
    if not len(above):
        raise ValueError("no row")
    return above, below


def _again(rows: int, rounds: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """(some rounds, rows): which rows are drawn."""
    random, some = np.random.default_rng(seed), max(1, CELLS // rows)
    for start in range(0, rounds, some):
        yield random.integers(rows, size=(min(some, rounds - start), rows))


def _signs(rows: int, rounds: int, seed: int) -> Iterator[Floats]:
    """(some rounds, rows) of -1 and 1."""
    if rows <= ENUMERATED:
        yield np.where(np.arange(1 << rows)[:, None] >> np.arange(rows) & 1, -1.0, 1.0)
        return
    random, some = np.random.default_rng(seed), max(1, CELLS // rows)
    for start in range(0, rounds, some):
        yield np.where(random.integers(2, size=(min(some, rounds - start), rows)), -1.0, 1.0)


def _levels(drawn: Floats, mean: float, influence: Floats, confidence: float) -> Sequence[float]:
    """The quantiles of what was drawn that bound the interval (Efron & Tibshirani 1993, 14.9-14.15)."""
    below = float(
        (np.searchsorted(drawn, mean, "left") + np.searchsorted(drawn, mean, "right"))
        / (2 * len(drawn))
    )
    if not 0 < below < 1:
        return ((1 - confidence) / 2, (1 + confidence) / 2)
    bias, spread = NORMAL.inv_cdf(below), float((influence**2).sum())
    bend = float((influence**3).sum()) / (6 * spread**1.5) if spread else 0.0
    ends = (bias + NORMAL.inv_cdf(level) for level in ((1 - confidence) / 2, (1 + confidence) / 2))
    return [NORMAL.cdf(bias + end / (1 - bend * end)) for end in ends]
