"""How many tokens two answers differ in, found only as far as it takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


def rest(one: Ids, other: Ids) -> tuple[Ids, Ids]:
    """Both without what they share at their beginnings and at their ends."""
    length = min(len(one), len(other))
    begin = _same(one[:length], other[:length])
    one, other = one[begin:], other[begin:]
    length = min(len(one), len(other))
    end = _same(one[::-1][:length], other[::-1][:length])
    return one[: len(one) - end], other[: len(other) - end]


def fewest(one: Ids, other: Ids) -> int:
    """A lower bound of `edits`: tokens that the other does not have as often."""
    _, inverse = np.unique(np.concatenate((one, other)), return_inverse=True)
    counts = np.bincount(inverse[: len(one)], minlength=len(inverse)) - np.bincount(
        inverse[len(one) :], minlength=len(inverse)
    )
    return int(np.abs(counts).sum())


def within(one: Ids, other: Ids, most: int) -> bool:
    """Do at most `most` insertions and deletions make the one the other? O(length + most^2) (Myers 1986)."""
    a, b = one.tolist(), other.tolist()
    reached = {1: 0}
    for steps in range(most + 1):
        for diagonal in range(-steps, steps + 1, 2):
            left, right = reached.get(diagonal - 1, -1), reached.get(diagonal + 1, -1)
            x = right if diagonal == -steps or (diagonal != steps and left < right) else left + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(a) and y >= len(b):
                return True
    return False


def _same(one: Ids, other: Ids) -> int:
    """How many items two arrays of one length share at their beginning."""
    differ = np.flatnonzero(one != other)
    return int(differ[0]) if len(differ) else len(one)
