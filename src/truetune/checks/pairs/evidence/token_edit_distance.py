"""Measures how many tokens two answers differ in, only as far as a limit of edits.

The exact number of edits takes steps that grow with its square, and most pairs are far apart. So what both share at
their ends is taken off first, then a bound from the counts of their tokens sorts most pairs out, and only what is left
is compared to the end, up to the number of edits that the caller still cares about.
"""

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


def lower_bound_of_edits(one: Ids, other: Ids) -> int:
    """A lower bound of the insertions and deletions: tokens that the other does not have as often.

    Order is not looked at, so that it may be far too low; it is never too high.
    """
    _, inverse = np.unique(np.concatenate((one, other)), return_inverse=True)
    counts = np.bincount(inverse[: len(one)], minlength=len(inverse)) - np.bincount(
        inverse[len(one) :], minlength=len(inverse)
    )
    return int(np.abs(counts).sum())


def is_within_edits(one: Ids, other: Ids, most: int) -> bool:
    """Do at most `most` insertions and deletions make the one the other?

    Myers, An O(ND) difference algorithm and its variations, 1986: paths through the grid of both sequences, where a
    step to the right deletes, a step down inserts, and a diagonal is free. O(length + most^2) steps.

    Args:
        one: ids, without what both share at their ends.
        other: likewise.
        most: edits up to which they count as alike.
    """
    a, b = one.tolist(), other.tolist()
    # Diagonal x - y -> the farthest x that was reached on it. The entry of diagonal 1 lets step 0
    # begin at (0, 0).
    reached = {1: 0}
    for steps in range(most + 1):
        # After n steps only every second diagonal can be reached.
        for diagonal in range(-steps, steps + 1, 2):
            left, right = reached.get(diagonal - 1, -1), reached.get(diagonal + 1, -1)
            inserts = diagonal == -steps or (diagonal != steps and left < right)
            x = right if inserts else left + 1
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
