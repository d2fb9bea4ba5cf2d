"""Statistics of noisy curves that few outliers don't move.

Losses have spikes, drift, and noise whose size is not known beforehand. Means and least squares follow the spikes, so
medians of differences and of slopes are used. The price is time (pairs of points), so long curves are thinned first.

Sources: Theil 1950 and Sen 1968 (slope), Mann 1945 and Kendall 1975 (trend), Hampel 1974 (MAD), Page 1954 (CUSUM).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from truetune.logs.run_log import Curve, Floats

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation -> standard deviation of a normal distribution"""
MAX_PAIRWISE_POINTS = 400
"""Points that pairwise statistics look at; longer curves are thinned to medians of blocks. 400 points are 80,000 pairs.
Chosen, not measured: double takes four times as long, half widens the intervals of short trends"""


class Trend(NamedTuple):
    """A straight line through a curve."""

    slope: float
    """a step: median of the slopes between all pairs (Theil-Sen)"""
    low: float
    high: float
    """95 % interval of the slope (Sen 1968, by the variance of Kendall's S)"""
    z: float
    """Mann-Kendall: > 0 rises; |z| > 3.3 has p < 0.001 where neighbours are independent"""


class LevelShift(NamedTuple):
    """The place where the level of a curve changes most."""

    at: int
    """Index of the first point of the new level"""
    before: float
    after: float
    """medians"""
    strength: float
    """Largest CUSUM over its standard deviation without a change"""


def block_medians(curve: Curve, most: int = MAX_PAIRWISE_POINTS) -> Curve:
    """The curve as the medians of equal blocks, at most `most` of them."""
    n = curve.step.size
    if n <= most:
        return curve
    edges = np.linspace(0, n, most + 1).astype(int)
    blocks = list(pairwise(edges))
    return Curve(
        np.array([np.median(curve.step[a:b]) for a, b in blocks]),
        np.array([np.median(curve.value[a:b]) for a, b in blocks]),
    )


def warmup_slope(rate: Curve, *, is_rounded: bool = False) -> float | None:
    """The learning rate's growth per step if it rises in a straight line up to its last point; None
    otherwise.

    Args:
        rate: the rate, or its share of the peak.
        is_rounded: is it printed with few decimals, so that neighbouring values may be equal?
    """
    if rate.step.size < 3 or rate.value[-1] <= 0:
        return None
    slope, offset = np.polyfit(rate.step, rate.value, 1)
    peak = float(rate.value[-1])
    # logged rates are rounded, and some warm-ups count from step 1: within 2 % of the peak a line is a line
    is_straight = np.abs(rate.value - slope * rate.step - offset).max() < 0.02 * peak
    if not is_straight or slope <= 0 or rate.value[0] > 0.7 * peak:
        return None
    steps = np.diff(rate.value)
    falls = np.any(steps < 0) if is_rounded else np.any(steps <= 0)
    return None if falls else float(slope)


def robust_sigma(values: Floats) -> float:
    """The robust standard deviation of values, by the median absolute deviation."""
    return (
        float(MAD_TO_SIGMA * np.median(np.abs(values - np.median(values)))) if values.size else 0.0
    )


def noise_sigma(values: Floats) -> float:
    """The robust standard deviation of the noise about a level that may drift, from differences of
    neighbours.
    """
    # a difference of two independent values has twice their variance
    return robust_sigma(np.diff(values)) / math.sqrt(2) if values.size > 2 else 0.0


def fit_robust_trend(curve: Curve) -> Trend:
    """The slope of a curve with its interval, and whether there is a trend at all. Needs 3 points."""
    step, value = block_medians(curve)
    n = step.size
    i, j = np.triu_indices(n, 1)
    slopes = np.sort((value[j] - value[i]) / (step[j] - step[i]))
    s = float(np.sign(value[j] - value[i]).sum())
    # Losses are logged with few digits: without the correction for ties, S looks surer than it is.
    _, ties = np.unique(value, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    deviation = math.sqrt(max(variance, 0.0))
    half = int(1.96 * deviation) // 2
    middle = slopes.size // 2
    return Trend(
        float(np.median(slopes)),
        float(slopes[max(0, middle - half)]),
        float(slopes[min(slopes.size - 1, middle + half)]),
        0.0 if deviation == 0 else (s - np.sign(s)) / deviation,
    )


def strongest_level_shift(values: Floats, margin: int = 3) -> LevelShift | None:
    """The strongest change of level (CUSUM on values that are clipped to 3 sigma); None under 2 * margin points."""
    n = values.size
    if n < 2 * margin:
        return None
    sigma = max(noise_sigma(values), 1e-12)
    # Clipped, a single spike can't outweigh a lasting change of a few sigma.
    centre = float(np.median(values))
    clipped = np.clip((values - centre) / sigma, -3 * MAD_TO_SIGMA, 3 * MAD_TO_SIGMA)
    sums = np.cumsum(clipped - clipped.mean())[:-1]
    k = np.arange(1, n)
    scaled = np.abs(sums) / np.sqrt(k * (n - k) / n)
    # near the ends, few points make any level look new
    scaled[: margin - 1] = scaled[n - margin :] = 0
    at = int(np.argmax(scaled)) + 1
    return LevelShift(
        at, float(np.median(values[:at])), float(np.median(values[at:])), float(scaled[at - 1])
    )


def rolling_median(values: Floats, width: int) -> Floats:
    """Median of the `width` values around each place (mirrored at the ends). Takes time times width:
    thin long curves."""
    half = max(0, min(width, values.size - 1) // 2)
    padded = np.pad(values, half, mode="reflect")
    medians = np.empty(values.size)
    # a window of each point at once would take `width` times the memory of the curve
    for start in range(0, values.size, 65_536):
        stop = min(start + 65_536, values.size)
        windows = np.lib.stride_tricks.sliding_window_view(
            padded[start : stop + 2 * half], 2 * half + 1
        )
        medians[start:stop] = np.median(windows, axis=1)
    return medians


def medians_of_both_ends(values: Floats, share: float = 0.1) -> tuple[float, float]:
    """Medians of the first and of the last share of the points."""
    k = max(1, min(values.size // 2, round(values.size * share))) if values.size > 1 else 1
    return float(np.median(values[:k])), float(np.median(values[-k:]))


def is_falling(curve: Curve) -> bool:
    """Does it come down, by a twentieth at least and more than chance?"""
    if curve.step.size < 3:
        return False
    first, last = medians_of_both_ends(curve.value)
    return last < 0.95 * first and fit_robust_trend(curve).z < -2


def stretches_of_true(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """[start, end) of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def find_lasting_rises(values: Floats) -> list[tuple[int, float]]:
    """(place, rise) of each jump of the level that lasts; single spikes are none.

    The level is the median of three neighbours on each side. A leap is 6 times the noise and a tenth of the level.
    """
    width = 3
    if values.size < 2 * width:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    medians = np.median(windows, axis=1)
    # leaps[i]: the records from i + width on, over those before them
    leaps = medians[width:] - medians[:-width]
    least = max(6 * noise_sigma(values), 0.1 * abs(float(np.median(values))))
    rises: list[tuple[int, float]] = []
    for start, end in stretches_of_true(leaps > least):
        # The level is steepest where single records leap most.
        first = start + width - 1
        steps = np.diff(values[first : end + width])
        rises.append((first + 1 + int(np.argmax(steps)), float(leaps[start:end].max())))
    return rises


def jumps_up_repeatedly(values: Floats) -> bool:
    """Does the curve jump up several times and fall again each time, also after the last?

    Rows in an order, or a run that begins again, make such a curve; a divergence stays up.
    """
    rises = find_lasting_rises(values)
    if len(rises) < 2:
        return False
    ends = [place for place, _ in rises[1:]] + [values.size]
    returned = []
    for (place, leap), end in zip(rises, ends, strict=True):
        stretch = values[place:end]
        fallen = float(np.median(stretch[:3]) - np.median(stretch[-3:]))
        returned.append(fallen > leap / 4)
    *earlier, last = [leap for _, leap in rises]
    return all(returned) and max(earlier) > last / 4
