"""Finds the size above which values did not move, which training in bare bfloat16 leaves behind.

A value of bfloat16 keeps 8 bits. An update of less than half of its last bit rounds to nothing, each time, so values
above a certain size never move while those below do: a cliff from one octave to the next. Where a float32 copy collects
the updates, larger values move later but do move, and the share falls slowly.

The trade-off: samples of two dozen matrices, in octaves of a thousand values at least; a cliff in one matrix alone is
not found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.compare_tensor_samples import sample_values
from truetune.checkpoint.load_checkpoint import Checkpoint

MAX_MATRICES, PLACES_PER_MATRIX = 24, 8
# A share of 0.05 of so many has a standard error of 0.007.
MIN_OCTAVE_VALUES = 1000
"""Values in an octave, so that its share means something"""
# Chosen, not measured: a gradual fall passes both within several octaves, a cliff within one.
MIN_MOVED_BELOW, MAX_MOVED_BEYOND = 0.5, 0.05
"""Share that moved on both sides of a cliff"""
# Chosen, not measured: a cliff beyond which hardly a value lies costs the training nothing.
MIN_SHARE_BEYOND = 0.2
"""Share of all values that must lie beyond it"""


class Octave(NamedTuple):
    """The values from 2**power up to twice that, and how many of them moved."""

    power: int
    values: int
    moved: float
    """Share"""


def count_moved_by_octave(checkpoint: Checkpoint, names: Iterable[str]) -> tuple[Octave, ...]:
    """How many sampled values of these tensors differ from the base's, by the size (octave) of the
    base's values; none without a base.
    """
    chosen = list(names)
    base = checkpoint.base
    if base is None or not chosen:
        return ()
    powers: list[NDArray[np.int32]] = []
    changed: list[NDArray[np.bool_]] = []
    for name in chosen[:: max(1, len(chosen) // MAX_MATRICES)][:MAX_MATRICES]:
        values = sample_values(checkpoint.tensors[name], PLACES_PER_MATRIX)
        base_values = sample_values(base.tensors[name], PLACES_PER_MATRIX)
        # A zero has no octave: any update moves it.
        is_nonzero = base_values != 0
        powers.append(np.frexp(base_values[is_nonzero])[1] - 1)
        changed.append(values[is_nonzero] != base_values[is_nonzero])
    power, change = np.concatenate(powers), np.concatenate(changed)
    counts = {int(p): int((power == p).sum()) for p in np.unique(power)}
    return tuple(
        Octave(p, n, float(change[power == p].mean()))
        for p, n in counts.items()
        if n >= MIN_OCTAVE_VALUES
    )


def index_of_first_octave_beyond_cliff(octaves: tuple[Octave, ...]) -> int | None:
    """The first octave beyond a cliff, as an index; None where there is none."""
    total = sum(octave.values for octave in octaves)
    for i in range(1, len(octaves)):
        # Everything beyond must stand still: one octave alone that did not move is chance.
        rest = octaves[i:]
        beyond = sum(octave.values for octave in rest)
        if (
            octaves[i - 1].moved >= MIN_MOVED_BELOW
            and all(o.moved <= MAX_MOVED_BEYOND for o in rest)
            and beyond >= MIN_SHARE_BEYOND * total
        ):
            return i if octaves[i].power == octaves[i - 1].power + 1 else None
    return None
