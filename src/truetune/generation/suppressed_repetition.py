"""Suppressed repetition: answers that repeat nothing where their references repeat themselves.

`no_repeat_ngram_size` forbids any n-gram of tokens to come twice, `repetition_penalty` makes each token that has come
once less likely. What must repeat itself (the keys of a list of objects, the rules of a table, variables) then breaks
where its first repetition is due: keys are misspelled, quotes and commas are replaced by others.

One answer proves nothing, for a model may leave the form of a reference by itself. So the place is looked at: the
answer follows its reference to where that repeats something first, and leaves it just there. The rule on such answers
(`checks/answers`) asks for several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truetune.generation.split_words import split_units

GRAM_UNITS = 4
"""Units (words and marks) of a sequence that comes again. A unit is a token or more, so that a limit on n-grams of 4
tokens or fewer lets none of them come twice"""
MIN_REPEATED_SHARE = 0.15
"""Share of the 4-grams of a reference that stand in it before, from which its form repeats itself: a list of two
objects has 0.3, prose 0.01"""
# Chosen, not measured; an answer in the form of its reference repeats about as much, one under a ban on 4-grams
# hardly at all.
MAX_SHARE_OF_REPEATS = 0.5
"""An answer that repeats itself so much less is not of its reference's form"""
# Chosen, not measured.
MIN_LENGTH_SHARE = 0.5
"""Least length of an answer, in units of its reference: what was cut short repeats less by itself"""


@dataclass(frozen=True, slots=True)
class SuppressedRepetition:
    """An answer whose reference repeats itself, and it does not."""

    answer_repeats: int
    reference_repeats: int
    """4-grams that stand before, in the answer and in its reference"""
    breaks_at: str
    """What the reference repeats where the answer leaves it"""


def find_suppressed_repetition(answer: str, reference: str) -> SuppressedRepetition | None:
    """Does an answer break where its reference first repeats itself? None where it does not."""
    units, wanted = split_units(answer), split_units(reference)
    due = len(_places_of_repeated_4_grams(wanted))
    if due < MIN_REPEATED_SHARE * len(wanted) or len(units) < MIN_LENGTH_SHARE * len(wanted):
        return None
    repeats = len(_places_of_repeated_4_grams(units))
    if repeats / len(units) > MAX_SHARE_OF_REPEATS * due / len(wanted):
        return None
    pairs = enumerate(zip(units, wanted, strict=False))
    break_at = next((at for at, (unit, expected) in pairs if unit != expected), 0)
    if break_at < GRAM_UNITS or not _is_repetition_due_in_reference(wanted, break_at):
        return None
    return SuppressedRepetition(repeats, due, " ".join(wanted[break_at : break_at + GRAM_UNITS]))


def repeats_itself(reference: str) -> bool:
    """Does the form of a text repeat itself, as a list of objects does?"""
    wanted = split_units(reference)
    return len(_places_of_repeated_4_grams(wanted)) >= MIN_REPEATED_SHARE * max(1, len(wanted))


def _places_of_repeated_4_grams(units: Sequence[str]) -> list[int]:
    """Places of the 4-grams of units that stand before in the text already."""
    earlier = set[tuple[str, ...]]()
    places = []
    for at in range(len(units) - GRAM_UNITS + 1):
        gram = tuple(units[at : at + GRAM_UNITS])
        if gram in earlier:
            places.append(at)
        earlier.add(gram)
    return places


def _is_repetition_due_in_reference(wanted: Sequence[str], at: int) -> bool:
    """Is what the reference says there, or next to it, said before? Three units tell: a value is no repetition."""
    # The grams that cover the place, and the one behind it: a ban shows at the unit that would make the gram whole.
    for start in range(max(0, at - GRAM_UNITS + 2), at + 2):
        gram = tuple(wanted[start : start + GRAM_UNITS - 1])
        if len(gram) == GRAM_UNITS - 1 and gram in _three_unit_grams(
            wanted[: start + GRAM_UNITS - 2]
        ):
            return True
    return False


def _three_unit_grams(units: Sequence[str]) -> set[tuple[str, ...]]:
    """All runs of three units."""
    return {tuple(units[at : at + GRAM_UNITS - 1]) for at in range(len(units) - GRAM_UNITS + 2)}
