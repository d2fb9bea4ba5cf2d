"""Suppressed repetition: answers that repeat nothing where their references repeat themselves.

`no_repeat_ngram_size` forbids any n-gram of tokens to come twice, `repetition_penalty` makes each token that has come
once less likely. What must repeat itself (the keys of a list of objects, the rules of a table, variables) then breaks
where its first repetition is due: keys are misspelled, quotes and commas are replaced by others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truetune.generation.split_words import split_units

GRAM = 4
"""Units (words and marks) of a sequence that comes again. A unit is a token or more, so that a limit on n-grams of 4
tokens or fewer lets none of them come twice"""
REPEATS = 0.15
"""Share of the 4-grams of a reference that stand in it before, from which its form repeats itself: a list of two
objects has 0.3, prose 0.01"""
FEWER = 0.5
"""An answer that repeats itself so much less is not of its reference's form"""
LENGTH = 0.5
"""Least length of an answer, in units of its reference: what was cut short repeats less by itself"""


@dataclass(frozen=True, slots=True)
class SuppressedRepetition:
    """An answer whose reference repeats itself, and it does not."""

    mine: int
    theirs: int
    """4-grams that stand before, in the answer and in its reference"""
    breaks_at: str
    """What the reference repeats where the answer leaves it"""


def find_suppressed_repetition(answer: str, reference: str) -> SuppressedRepetition | None:
    """Does an answer break where its reference first repeats itself? None where it does not."""
    said, wanted = split_units(answer), split_units(reference)
    repeated = _repeated_places(wanted)
    if len(repeated) < REPEATS * len(wanted) or len(said) < LENGTH * len(wanted):
        return None
    mine, theirs = len(_repeated_places(said)) / len(said), len(repeated) / len(wanted)
    if mine > FEWER * theirs:
        return None
    both = zip(said, wanted, strict=False)
    left = next((at for at, (mine_unit, unit) in enumerate(both) if mine_unit != unit), 0)
    if left < GRAM or not _is_due(wanted, left):
        return None
    return SuppressedRepetition(
        len(_repeated_places(said)), len(repeated), " ".join(wanted[left : left + GRAM])
    )


def repeats_itself(reference: str) -> bool:
    """Does the form of a text repeat itself, as a list of objects does?"""
    wanted = split_units(reference)
    return len(_repeated_places(wanted)) >= REPEATS * max(1, len(wanted))


def _repeated_places(found: Sequence[str]) -> list[int]:
    """Places of the 4-grams that stand before."""
    seen = set[tuple[str, ...]]()
    places = []
    for at in range(len(found) - GRAM + 1):
        gram = tuple(found[at : at + GRAM])
        if gram in seen:
            places.append(at)
        seen.add(gram)
    return places


def _is_due(wanted: Sequence[str], at: int) -> bool:
    """Is what the reference says there, or next to it, said before? Three units tell: a value is no repetition."""
    return any(
        tuple(wanted[start : start + GRAM - 1]) in _short_grams(wanted[: start + GRAM - 2])
        for start in range(max(0, at - GRAM + 2), at + 2)
        if len(wanted[start : start + GRAM - 1]) == GRAM - 1
    )


def _short_grams(found: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(found[at : at + GRAM - 1]) for at in range(len(found) - GRAM + 2)}
