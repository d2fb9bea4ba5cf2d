"""Finds how often a learning rate falls to its lowest value and climbs back to its peak.

A cosine that is stepped past its end climbs as it fell, and falls again: the rate swings with twice the length that
the schedule was given. Planned cycles look otherwise: restarts jump to the peak, those with a warm-up climb faster
than they fall, and a cyclical rate goes in straight lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

EDGE = 0.05
"""Share of the range within which a rate counts as at its peak, or at its lowest. Chosen, not measured: a wave of
forty records and more has several there, and one of six has one"""
# Chosen, not measured: two waves may be planned (num_cycles of a cosine).
MIN_SWINGS = 3
# Chosen, not measured: cyclical rates are planned for a few cycles in a run (Smith 2017 takes 3 to 5).
MIN_STRAIGHT_SWINGS = 10
STRAIGHT = 1.3
"""Steepest over mean slope; about 1 of triangles, and 1.4 to 1.6 of a cosine"""
MAX_UNEVENNESS = 0.25
"""Difference of the records of falls and climbs, as a share of both. Chosen, not measured: a warm-up is much shorter
than its decay"""


@dataclass(frozen=True, slots=True)
class RateSwings:
    """The falls and climbs of a learning rate."""

    count: int
    """Climbs from the lowest value to the peak"""
    period_records: float
    """Records of a fall and a climb"""
    is_straight: bool
    """Does it go up and down in straight lines?"""

    @property
    def has_more_swings_than_planned(self) -> bool:
        """Does it swing more often than anyone plans?"""
        return self.count >= (MIN_STRAIGHT_SWINGS if self.is_straight else MIN_SWINGS)


def find_swings(rates: NDArray[np.float64]) -> RateSwings | None:
    """The swings of a rate; None where it has none, or falls and climbs are not alike.

    Args:
        rates: the finite rates of a run, in the order of its records.
    """
    low, high = float(rates.min()), float(rates.max())
    # A rate that swings by less is as good as constant.
    if high <= 0 or low > 0.5 * high:
        return None
    edge = EDGE * (high - low)
    sides = np.where(rates >= high - edge, 1, np.where(rates <= low + edge, -1, 0))
    climbs, falls = _record_counts_of_climbs_and_falls(sides)
    # A restart jumps: there is no record between the lowest rate and the peak.
    if not climbs.size or not falls.size or np.median(climbs) < 2 or np.median(falls) < 2:
        return None
    up, down = float(climbs.mean()), float(falls.mean())
    if abs(up - down) > MAX_UNEVENNESS * (up + down):
        return None
    places = np.flatnonzero(sides)
    turns = places[np.flatnonzero(np.diff(sides[places])) + 1]
    period = 2 * float(np.diff(turns).mean()) if turns.size > 1 else up + down
    jumps = np.abs(np.diff(rates))
    return RateSwings(climbs.size, period, bool(jumps.max() <= STRAIGHT * jumps.mean()))


def _record_counts_of_climbs_and_falls(
    sides: NDArray[np.int_],
) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """The records of each climb, and those of each fall.

    Args:
        sides: 1 where a rate is at its peak, -1 where it is at its lowest, 0 between.
    """
    ways = [
        (int(sides[after]), int(after - before))
        for before, after in pairwise(np.flatnonzero(sides))
        if sides[before] != sides[after]
    ]
    climbs = np.array([records for side, records in ways if side > 0])
    falls = np.array([records for side, records in ways if side < 0])
    return climbs, falls
