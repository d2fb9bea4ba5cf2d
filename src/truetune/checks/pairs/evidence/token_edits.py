"""How many tokens two answers differ in, found only as far as it takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


def without_common_ends(one: Ids, other: Ids) -> tuple[Ids, Ids]:
    """Both without what they share at their beginnings and at their ends."""
    begin = common_prefix_length(one, other)
    one, other = one[begin:], other[begin:]
    end = common_prefix_length(one[::-1], other[::-1])
    return one[: len(one) - end], other[: len(other) - end]


def min_edits(one: Ids, other: Ids) -> int:
    """A lower bound of `edits`: tokens that the other does not have as often."""
    _, inverse = np.unique(np.concatenate((one, other)), return_inverse=True)
    counts = np.bincount(inverse[: len(one)], minlength=len(inverse)) - np.bincount(
        inverse[len(one) :], minlength=len(inverse)
    )
    return int(np.abs(counts).sum())


def is_within_edits(one: Ids, other: Ids, most: int) -> bool:
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


def common_prefix_length(one: Ids, other: Ids) -> int:
    """How many items both have in common at their beginning."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length
