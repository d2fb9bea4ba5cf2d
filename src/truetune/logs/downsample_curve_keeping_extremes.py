"""Reduces a long curve to few points for drawing, and keeps the extremes of each stretch.

Means or every tenth point would hide the one spike, or the one NaN, that a reader looks for. So each stretch keeps its
smallest and its largest value; the noise of a curve looks as wide as it is. A moving mean is drawn beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truetune.logs.run_log import Curve, Floats

MAX_POINTS = 800
"""At most so many of a curve"""
MAX_SMOOTH_POINTS = 200
"""At most so many of its moving mean"""
MIN_RECORDS = 10
"""Fewer records have no moving mean"""
SMOOTHED_PARTS = 25
"""The moving mean is over this part of the records"""


def downsample_curve(curve: Curve, points: int = MAX_POINTS) -> Curve:
    """The curve in at most `points` points: of each stretch the smallest and the largest value, or
    one that is not finite if there is such; first and last point stay.
    """
    size = curve.step.size
    if size <= points:
        return curve
    # two points of each stretch, and the first and last: hence half as many stretches
    edges = np.linspace(0, size, points // 2).astype(np.int64)[:-1]
    edges[1:] += 1
    kept = np.concatenate(
        [
            _index_of_extreme_by_stretch(curve.value, edges, np.inf),
            _index_of_extreme_by_stretch(curve.value, edges, -np.inf),
            [0, size - 1],
        ]
    )
    places = np.unique(kept)
    return Curve(curve.step[places], curve.value[places])


def _index_of_extreme_by_stretch(
    values: Floats, edges: NDArray[np.int64], sign: float
) -> NDArray[np.int64]:
    """The index of the smallest value of each stretch (`sign` inf), or of its largest. Stretches
    begin at `edges`.
    """
    # what is no number becomes the extreme that is looked for, so that it is kept and drawn as a gap
    filled = np.where(np.isfinite(values), values, -np.inf if sign > 0 else np.inf)
    extreme = (np.minimum if sign > 0 else np.maximum).reduceat(filled, edges)
    stretch = np.searchsorted(edges, np.arange(values.size), side="right") - 1
    at = np.flatnonzero(filled == extreme[stretch])
    return at[np.unique(stretch[at], return_index=True)[1]].astype(np.int64)


def smooth_curve(curve: Curve) -> Curve:
    """The moving mean of the curve, at no more than SMOOTH of its steps; empty if there are few
    records.
    """
    known = curve.finite()
    size = known.step.size
    wide = max(1, size // SMOOTHED_PARTS // 2)
    if size < MIN_RECORDS:
        return Curve(np.zeros(0), np.zeros(0))
    # prefix sums: the mean of any window is one subtraction, however wide
    sums = np.concatenate(([0.0], np.cumsum(known.value)))
    places = np.unique(np.linspace(0, size - 1, MAX_SMOOTH_POINTS).astype(np.int64))
    low, high = np.maximum(places - wide, 0), np.minimum(places + wide + 1, size)
    return Curve(known.step[places], (sums[high] - sums[low]) / (high - low))
