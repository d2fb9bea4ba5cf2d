"""Effect: what training did to the log-probabilities of given tokens, and how much of it is there in another form.

All forms are asked the same thing, the log-probability of each token of the same answers, since that is what a server
tells too. With b, t and s for base, tuned and the form in question, and d over all places, the part that is kept is the
least-squares factor of (s - b) along (t - b), and the direction their cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OFF = 0.25
"""How much more or less of the effect than all of it is still the adapter's"""
ALIKE = 0.9
"""Cosine between an effect and the adapter's"""
NOTHING = 1e-4
"""Nats (root mean square) below which there is no effect"""

Places = Sequence[NDArray[np.float32]]
"""Log-probabilities of some sequences, in nats, at the places that are compared"""


@dataclass(frozen=True, slots=True)
class Effect:
    """How much of the adapter's effect is there."""

    kept: float
    """1 where it is all there, 0 where it is the base; nan where there is none to compare"""
    cosine: float
    size: float
    """Root mean square of the effect that should be there, in nats"""
    largest: float
    """The largest difference to it, in nats"""
    places: int

    @property
    def lost(self) -> bool:
        """Is it something else than the adapter's effect?"""
        return self.size < NOTHING or not abs(self.kept - 1) <= OFF or not self.cosine >= ALIKE


def effect(base: Places, tuned: Places, seen: Places) -> Effect:
    """What of tuned - base is there in `seen`; places that one of them can't tell (nan) are left out."""
    b, t, s = (
        np.concatenate([np.asarray(row, np.float64) for row in rows])
        for rows in (base, tuned, seen)
    )
    known = np.isfinite(b) & np.isfinite(t) & np.isfinite(s)
    should, there = (t - b)[known], (s - b)[known]
    squares, others, along = should @ should, there @ there, should @ there
    count = int(known.sum())
    return Effect(
        kept=float(along / squares) if squares else np.nan,
        cosine=float(along / np.sqrt(squares * others)) if squares and others else 0.0,
        size=float(np.sqrt(squares / max(1, count))),
        largest=float(np.abs(there - should).max(initial=0.0)),
        places=count,
    )
