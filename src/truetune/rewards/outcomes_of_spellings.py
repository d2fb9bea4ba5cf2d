"""Whether completions in another spelling are paid as the right answer is: one outcome a row, and their summary.

The example of a summary is a completion that shows the fault, where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from truetune.generation.reward_trial import SpellingScores


class SpellingOutcome(NamedTuple):
    """What one completion in another spelling gets."""

    row: int
    """The number of its row, from 1"""
    text: str
    is_paid: bool
    """Is it scored as the right answer is?"""


def is_nearer_to_right(score: float | None, right: float | None, wrong: float | None) -> bool:
    """Is a completion scored more like the right answer than like a wrong one? Some functions pay it a little less."""
    if score is None or right is None:
        return False
    return score > (right + (right - 1 if wrong is None else wrong)) / 2


def sum_up_outcomes(
    name: str, outcomes: Sequence[SpellingOutcome], *, is_example_paid: bool = False
) -> SpellingScores | None:
    """The outcomes of all rows as one record; None where there are none.

    Args:
        name: of the spelling.
        outcomes: one or more of each row.
        is_example_paid: take one that is paid as the example, where there is one, and not one that is refused.
    """
    if not outcomes:
        return None
    choose = max if is_example_paid else min
    example = choose(outcomes, key=lambda outcome: outcome.is_paid)
    paid = sum(outcome.is_paid for outcome in outcomes)
    return SpellingScores(name, example.row, example.text, len(outcomes), paid)
