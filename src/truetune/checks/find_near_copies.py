"""Finds near copies: pairs of similar rows among the sketches of many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.row_fingerprints import EMPTY_SKETCH, HASHES

# Two of the 16 hashes a band: at a similarity of 0.8 a pair shares one with a chance of 1 - 0.36^8 = 0.9997, so that
# hardly any is missed; those that share one by chance are compared in full.
BANDS = 8
# Chosen, not measured. At 0.6 rows of one template are near copies; at 0.95 one word in twenty hides a copy.
NEAR = 0.8
"""Estimated Jaccard similarity from which two rows count as near duplicates."""

SHARED = 0.2
# Chosen, not measured. At half, a topic of a tenth of the rows would not count as likeness; at double, an instruction
# of a third of them would.
"""Share of the rows from which an entry of their sketches is of a text that they share: an instruction, a policy"""
MIN_SHARED = 10
"""The same in rows: among few rows, copies are as many"""
MIN_VARIED = 4
# Chosen, not measured: of fewer entries 0.8 is all or nothing.
"""Entries of two sketches besides, from which the rest of two rows can be compared"""


class GrowingArray:
    """Arrays of the batches, to be one array in the end."""

    def __init__(self) -> None:
        self.parts: list[NDArray[Any]] = []

    def add(self, part: NDArray[Any]) -> None:
        """Append the array of one more batch."""
        self.parts.append(part)

    def whole(self) -> NDArray[Any]:
        """All parts joined to one array."""
        return np.concatenate(self.parts) if self.parts else np.zeros(0, dtype=np.uint64)


def find_near_pairs(sketches: NDArray[np.uint32]) -> list[tuple[int, int]]:
    """(earlier row, later row) of rows with at least NEAR of their sketch in common; each later row
    once.
    """
    nearest: dict[int, int] = {}
    width = HASHES // BANDS
    usable = np.flatnonzero((sketches != EMPTY_SKETCH).any(axis=1))
    for band in range(BANDS):
        keys = _hash_rows(sketches[usable, band * width : (band + 1) * width])
        # Stable, so that each later row is compared with the nearest earlier one of its band, as the docstring says.
        order = np.argsort(keys, kind="stable")
        same = np.flatnonzero(keys[order][1:] == keys[order][:-1])
        for early, late in zip(
            usable[order[same]].tolist(), usable[order[same + 1]].tolist(), strict=True
        ):
            if late not in nearest and (sketches[early] == sketches[late]).mean() >= NEAR:
                nearest[late] = early
    return sorted((early, late) for late, early in nearest.items())


def find_near_copy_rows(
    sketches: NDArray[np.uint32],
    answers: NDArray[np.uint64],
    answer_sketches: NDArray[np.uint32],
) -> list[tuple[int, int]]:
    """Pairs as `find_near_pairs`, of rows that are alike beyond what many rows share, and whose answers are as well.

    `answers`: (rows,) hashes of the answers, for those that are too short for a sketch.
    """
    varied = _entries_not_shared_by_many(sketches)
    return [
        (early, late)
        for early, late in find_near_pairs(sketches)
        if _are_alike_in_varied_entries(sketches, varied, early, late)
        and _answers_are_near(answers, answer_sketches, early, late)
    ]


def _are_alike_in_varied_entries(
    sketches: NDArray[np.uint32], varied: NDArray[np.bool_], early: int, late: int
) -> bool:
    """Are two rows alike by the entries that are theirs alone?"""
    own = varied[early] | varied[late]
    if own.all():
        return True
    same = (sketches[early] == sketches[late])[own]
    return len(same) >= MIN_VARIED and bool(same.mean() >= NEAR)


def _answers_are_near(
    answers: NDArray[np.uint64], sketches: NDArray[np.uint32], early: int, late: int
) -> bool:
    """Are the answers of two rows near, or equal where they are too short for a sketch?"""
    # A text of few words has an empty sketch, and two empty ones are equal: such answers are compared as they are.
    if (sketches[[early, late]] == EMPTY_SKETCH).all():
        return bool(answers[early] == answers[late])
    return bool((sketches[early] == sketches[late]).mean() >= NEAR)


def _entries_not_shared_by_many(sketches: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """(rows, hashes) the entries that are not those of many rows: what many rows begin with makes no two rows alike."""
    varied = np.ones(sketches.shape, dtype=np.bool_)
    most = max(MIN_SHARED, SHARED * len(sketches))
    for column in range(sketches.shape[1]):
        _, inverse, counts = np.unique(sketches[:, column], return_inverse=True, return_counts=True)
        varied[:, column] = (counts < most)[inverse]
    return varied


def find_near_rows_in(sketches: NDArray[np.uint32], others: NDArray[np.uint32]) -> dict[int, int]:
    """For rows of `sketches`: a row of `others` that is near."""
    count = len(others)
    joined = np.concatenate((others, sketches)) if count else sketches
    nearest: dict[int, int] = {}
    width = HASHES // BANDS
    for band in range(BANDS):
        keys = _hash_rows(joined[:, band * width : (band + 1) * width])
        first = dict(zip(keys[:count].tolist(), range(count), strict=True))
        for row, key in enumerate(keys[count:].tolist()):
            other = first.get(key)
            if other is not None and row not in nearest and sketches[row, 0] != EMPTY_SKETCH:
                if (sketches[row] == others[other]).mean() >= NEAR:
                    nearest[row] = other
    return nearest


def _hash_rows(part: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """(rows,) one hash for the entries of each row."""
    keys = np.zeros(len(part), dtype=np.uint64)
    for column in part.T:
        # The prime of FNV-1a: multiply and xor spreads the hashes of a band over 64 bits, with overflow as wanted.
        keys = keys * np.uint64(0x100000001B3) ^ column
    return keys
