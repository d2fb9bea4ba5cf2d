"""Displaced answers: stretches of rows whose answers stand some rows away, and sets whose answers stand anywhere.

Both are told by affinity: the answer of another row is near to a question, and the row's own is like anybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.checks.findings import Case
from truetune.checks.word_affinity import QuestionAnswerAffinity
from truetune.data.conversation import Origin

# Chosen, not measured: rows lost or doubled by hand are few. At double, twice as many offsets are tried by chance.
FARTHEST = 20
"""Rows by which answers may be displaced, to be named"""
# Chosen, not measured: at half, runs of rows on one topic look displaced; at double, a shift near the end is missed.
SHORTEST = 20
"""Rows of a stretch whose answers are displaced"""
# 41 offsets x thousands of stretches: at 3 standard errors chance alone finds one in most files.
SIGMAS = 6.0
"""Standard errors: hundreds of offsets and stretches are tried"""
OWN_AT_MOST = 0.25
"""Share of the neighbour's affinity that a row's own answer has: over the public sets it is ten times as high"""
MIN_PAIR_SHARE = 0.05
"""Share of the questions that are a pair with some answer; of nine public sets that the tests lay out seven have 0.07
to 0.76, rows with filled-in templates for answers 0 to 0.004"""
MIN_PAIRS = 20
MIN_SHIFTED_PAIRS = 5
"""Pairs that a shift explains: in 20 rows of the public sets stand 1.5 to 15 pairs, in 1,000 with filled-in templates 4
at any distance"""
# Chosen, not measured: one in twenty questions may be answered by its own row by chance, as by "Yes, of course".
OWN_NEAREST = 0.05


@dataclass(frozen=True, slots=True)
class AnswerShift:
    """A stretch of rows whose answers stand some rows away."""

    offset: int
    first: int
    last: int
    own: NDArray[np.float32]
    """(rows,) affinity with the own answer"""
    other: NDArray[np.float32]
    """(rows,) with that of the row `offset` on"""
    sigmas: float


def find_answer_shift(
    affinity: QuestionAnswerAffinity, chunk: Sequence[tuple[str, str, Origin]]
) -> AnswerShift | None:
    """The most certain stretch whose answers stand a fixed number of rows away."""
    candidates = []
    distances = np.where(affinity.pairs(), affinity.nearest() - np.arange(affinity.rows), 0)
    for offset in (*range(-FARTHEST, 0), *range(1, FARTHEST + 1)):
        other = np.nan_to_num(affinity.at(offset))
        gain = other - affinity.own
        for row in np.flatnonzero(gain > 0).tolist():
            # 200 characters: enough to tell an answer from another, and a short quotation is no conversation.
            if chunk[row + offset][1].strip()[:200] in chunk[row][0]:
                gain[row] = (
                    0.0  # the question quotes an answer before it: one conversation in several rows
                )
        first, last = _best_stretch(gain)
        part = slice(first, last + 1)
        if (
            last - first + 1 < SHORTEST
            or not gain[part].any()
            or np.count_nonzero(distances[part] == offset) < MIN_SHIFTED_PAIRS
        ):
            continue
        error = float(gain[part].std()) / np.sqrt(last - first + 1)
        # 1e-9: a stretch of equal gains has no spread, and a division by it would be endless.
        sigmas = float(gain[part].mean()) / max(error, 1e-9)
        own, other_part = affinity.own[part], other[part]
        if sigmas >= SIGMAS and own.mean() <= OWN_AT_MOST * other_part.mean():
            candidates.append(AnswerShift(offset, first, last, own, other_part, sigmas))
    return max(candidates, key=lambda shift: shift.sigmas, default=None)


def _best_stretch(gain: NDArray[np.float32]) -> tuple[int, int]:
    """First and last row of the stretch with the largest sum (Kadane 1984)."""
    best, first, last = 0.0, 0, -1
    total, start = 0.0, 0
    for row, value in enumerate(gain.tolist()):
        if total <= 0:
            total, start = 0.0, row
        total += value
        if total > best:
            best, first, last = total, start, row
    return first, last


def are_answers_elsewhere(affinity: QuestionAnswerAffinity, pairs: int, own: int) -> bool:
    """Have many questions an answer of their own somewhere else, and are theirs like anybody's?"""
    if pairs < max(MIN_PAIRS, MIN_PAIR_SHARE * affinity.rows) or own > OWN_NEAREST * pairs:
        return False
    gain = affinity.own - affinity.of_others()
    error = float(gain.std()) / np.sqrt(len(gain))
    # Three standard errors above 0 would show that the rows' own answers are nearer than those of others.
    return bool(float(gain.mean()) < 3 * error)


def format_mean_with_interval(values: NDArray[np.float32]) -> str:
    """A mean with its 95 % interval."""
    # 1.96 standard errors either way: the normal approximation, good from some 30 rows on.
    half = 1.96 * float(values.std()) / np.sqrt(len(values))
    return f"{float(values.mean()):.2f} (95 %: {values.mean() - half:.2f} to {values.mean() + half:.2f})"


def case_of_displaced_answer(
    chunk: Sequence[tuple[str, str, Origin]], row: int, other: int
) -> Case:
    """The case of a question whose answer stands at another row."""
    question, answer = chunk[row][0].strip()[:60], chunk[other][1].strip()[:60]
    return Case(f"{question!r} is answered at {chunk[other][2]}: {answer!r}", chunk[row][2])
