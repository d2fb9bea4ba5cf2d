"""Compares the end of a loss curve with its beginning."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from truetune.logs.robust_statistics import (
    noise_sigma,
    robust_sigma,
    rolling_median,
)
from truetune.logs.run_log import Curve, Floats

MIN_POINTS, MOST_POINTS = 8, 2_000
"""Records. Chosen by hand: beginning, lowest place and end are medians of several records each; more than 2,000 are
thinned to medians of blocks, which bounds the time of the search for a change"""


JUMP = 2.0
"""Nats above the first record at which the later ones lie: the perplexity is seven times as high. Records of one run
differ by a few tenths; runs that were destroyed at once rose by 4 and more"""


def jumps_after_first_record(loss: Curve) -> bool:
    """Does the loss jump right behind its first record, and never come back?"""
    later = loss.value[1:]
    if later.size < MIN_POINTS:
        return False
    first = float(loss.value[0])
    return bool(later.min() > first and np.median(later) > first + JUMP)


class LossLevels(NamedTuple):
    """Where a loss began, was lowest and ended, as medians of neighbours."""

    first: float
    best: float
    low: int
    """Index of the lowest level"""
    last: float
    sigma: float
    """Noise of one record"""
    at_once: bool
    """It jumped right behind its first record"""
    is_worse: bool
    """The end lies above the beginning"""
    is_lost: bool
    """More than half of what had been gained is given back"""


def measure_loss_levels(values: Floats, at_once: bool) -> LossLevels:
    """The levels of a loss, and whether its end is above them by more than noise makes."""
    n = values.size
    k = max(3, n // 10)
    first = min(float(np.median(values[:k])), float(np.median(values[:3])))
    if at_once:
        first = float(values[0])
    last = float(np.median(values[-k:]))
    width = max(5, n // 20)
    smooth = rolling_median(values, width)
    low = int(np.argmin(smooth))
    best = float(smooth[low])
    sigma = max(
        noise_sigma(values),
        min(robust_sigma(values[:k]), robust_sigma(values[-k:])),
    )
    # The median of k values has 1.25 times the standard error of their mean, and here two such medians are compared.
    # 5 of them are chosen, not measured: losses have heavier tails than normal noise.
    sure = 5 * 1.25 * sigma * math.sqrt(2 / k)
    is_worse = last > first + max(sure * math.sqrt((k / 3 + 1) / 2), 0.1 * abs(first))
    # The lowest of n / width medians lies below their level by chance: sqrt(2 ln m) standard errors for m of them.
    chance = (
        1.25
        * sigma
        * (3 * math.sqrt(1 / k + 1 / width) + math.sqrt(2 * math.log(n / width) / width))
    )
    given_back = last > best + max(chance, 0.5 * max(0.0, first - best), 0.2 * abs(best))
    # a low point within the last tenth has no end to compare with
    return LossLevels(first, best, low, last, sigma, at_once, is_worse, given_back and low < n - k)


def ends_above_beginning(loss: Curve) -> bool:
    """Does a loss end above the level of its first records, by more than noise makes?"""
    values = loss.value
    return (
        values.size >= MIN_POINTS
        and measure_loss_levels(values, jumps_after_first_record(loss)).is_worse
    )
