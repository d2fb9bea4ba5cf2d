"""The figure of a rule that found nothing: how many of how many things were examined and are as
they should be.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """How many of how many things are as they should be, or are not, where a rule found nothing.

    It is counted in the pass that judges, so it costs no second one. Where `of` is 0 there was nothing to measure, and
    the rule is not judged.
    """

    text: str
    """One plain phrase with its numbers: `rows of the evaluation data in the training data: 0 of 500`"""
    count: int
    of: int


def make_count_measurement(what: str, count: int, of: int, more: str = "") -> Measurement:
    """`what: count of of`, then what else is worth knowing, as text and as numbers.

    Args:
        what: the things that are counted, in the plural: `answers that are empty`.
        count: how many.
        of: of how many.
        more: what follows the numbers, with its own beginning (`; ...`, ` (...)`).
    """
    return Measurement(f"{what}: {count:,} of {of:,}{more}", int(count), int(of))
