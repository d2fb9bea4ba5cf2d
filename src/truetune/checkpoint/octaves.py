"""Which values moved, by their size: what training in bare bfloat16 leaves behind.

A value of bfloat16 keeps 8 bits. An update of less than half of its last bit rounds to nothing, each time, so values
above a certain size never move while those below do: a cliff from one octave to the next. Where a float32 copy collects
the updates, larger values move later but do move, and the share falls slowly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.checkpoint import Checkpoint
from truetune.checkpoint.compare import sample

MATRICES, PLACES = 24, 8
FEWEST = 1000
"""Values in an octave, so that its share means something"""
UP, DOWN = 0.5, 0.05
"""Share that moved on both sides of a cliff"""
BEYOND = 0.2
"""Share of all values that must lie beyond it"""


class Octave(NamedTuple):
    """The values of 2**power up to twice of that."""

    power: int
    values: int
    moved: float
    """Share"""


def octaves(found: Checkpoint, names: Iterable[str]) -> tuple[Octave, ...]:
    """Samples of these tensors against the base's, by the size of the base's values."""
    chosen = list(names)
    if found.base is None or not chosen:
        return ()
    powers: list[NDArray[np.int32]] = []
    changed: list[NDArray[np.bool_]] = []
    for name in chosen[:: max(1, len(chosen) // MATRICES)][:MATRICES]:
        mine, theirs = sample(found.tensors[name], PLACES), sample(found.base.tensors[name], PLACES)
        there = theirs != 0
        powers.append(np.frexp(theirs[there])[1] - 1)
        changed.append(mine[there] != theirs[there])
    power, change = np.concatenate(powers), np.concatenate(changed)
    counts = {int(p): int((power == p).sum()) for p in np.unique(power)}
    return tuple(
        Octave(p, n, float(change[power == p].mean())) for p, n in counts.items() if n >= FEWEST
    )


def cliff(found: tuple[Octave, ...]) -> int | None:
    """The first octave beyond a cliff, as an index; None where there is none."""
    total = sum(octave.values for octave in found)
    for i in range(1, len(found)):
        rest = found[i:]
        beyond = sum(octave.values for octave in rest)
        if (
            found[i - 1].moved >= UP
            and all(o.moved <= DOWN for o in rest)
            and beyond >= BEYOND * total
        ):
            return i if found[i].power == found[i - 1].power + 1 else None
    return None
