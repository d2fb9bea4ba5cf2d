"""Finds answers that stand some rows away from their questions by quantities: lengths of texts, sizes of numbers.

A long sentence has a long translation, and a problem with large numbers a large result, though the two share no word.
Over a stretch of rows the rank correlation (Spearman 1904) of a quantity of the questions with that of the answers says
how much; the same with the answers some rows away says whether these are the right ones. Two correlations are compared
by Fisher's transformation (1921), with all stretches and distances that are tried counted in the limit.

The trade-off: where lengths and numbers of questions tell nothing of their answers, nothing is found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STRETCH, MIN_STRETCH = 100, 40
"""Rows of a stretch that is judged by itself, and of the last one at least"""
FARTHEST = 5
"""Rows by which the answers may be away: a dropped or doubled row makes one, a header two"""
# One in 20 million by chance; a file of 20,000 rows is tried 4,000 times.
MIN_ERRORS = 5.5
"""Standard errors between the two correlations"""
MIN_CORRELATION = 0.5
"""Of the answers that are away"""
OWN_AT_MOST = 0.5
"""Share of it that the rows' own answers have"""
MIN_JUDGED_SHARE = 0.8
"""Share of the rows of a stretch that have the quantity on both sides"""
MIN_DIFFERENT_SHARE = 0.2
"""Of the questions: `Are you sure?` and the like are asked of any answer, and their lengths tell nothing of it"""
QUOTED, MAX_QUOTING_SHARE = 40, 0.2
"""Characters of an answer that a later question may quote, and the share of the rows that may do so"""
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
MAX_DIGITS = 12
"""Of a number: longer ones are ids"""


@dataclass(frozen=True, slots=True)
class AnswerShift:
    """A stretch of rows whose answers stand at other rows."""

    first: int
    """The first row of the stretch"""
    count: int
    offset: int
    """Rows from a question to its answer; positive behind it"""
    quantity: str
    """As a message names it"""
    own_correlation: float
    correlation: float


def find_answer_shift(questions: Sequence[str], answers: Sequence[str]) -> AnswerShift | None:
    """The stretch whose answers most surely stand some rows away; None where there is none.

    Args:
        questions: of the rows in file order.
        answers: of the same rows.
    """
    if len(set(questions)) < MIN_DIFFERENT_SHARE * len(questions):
        return None
    if _do_questions_quote_answers(questions, answers):
        return None
    shifts_by_chance: list[tuple[float, AnswerShift]] = []
    for name, of_question, of_answer in QUANTITIES:
        asked = np.array([of_question(text) for text in questions])
        answered = np.array([of_answer(text) for text in answers])
        for first in range(0, len(asked) - MIN_STRETCH + 1, STRETCH):
            stretch = slice(first, first + STRETCH)
            shifts_by_chance += _shifts_of_stretch(name, first, asked[stretch], answered[stretch])
    return max(shifts_by_chance, key=lambda one: one[0])[1] if shifts_by_chance else None


def _do_questions_quote_answers(questions: Sequence[str], answers: Sequence[str]) -> bool:
    """Does the row after an answer often quote it, as unrolled conversations do?"""
    quoting = sum(
        answer[:QUOTED] in question
        for question, answer in zip(questions[1:], answers, strict=False)
        if len(answer) >= QUOTED
    )
    return quoting > MAX_QUOTING_SHARE * len(questions)


def _shifts_of_stretch(
    name: str, first: int, asked: NDArray[np.float64], answered: NDArray[np.float64]
) -> Iterator[tuple[float, AnswerShift]]:
    """The distances at which the answers of a stretch fit far better than at their own rows."""
    own, _ = _rank_correlation(asked, answered)
    for offset in (*range(-FARTHEST, 0), *range(1, FARTHEST + 1)):
        begin, end = max(0, -offset), len(asked) - max(0, offset)
        other, rows = _rank_correlation(asked[begin:end], answered[begin + offset : end + offset])
        if rows < MIN_STRETCH or other < MIN_CORRELATION or own > OWN_AT_MOST * other:
            continue
        # A wrong pairing makes no correlation. Long answers to short questions have one below zero at their own rows.
        apart = math.atanh(min(other, 0.999)) - math.atanh(max(own, 0.0))
        errors = apart * math.sqrt((rows - 3) / 2)
        if errors >= MIN_ERRORS:
            yield errors, AnswerShift(first, rows, offset, name, own, other)


def _rank_correlation(
    asked: NDArray[np.float64], answered: NDArray[np.float64]
) -> tuple[float, int]:
    """Spearman's correlation of two quantities, and of how many rows; 0 of rows that mostly lack them."""
    known = ~(np.isnan(asked) | np.isnan(answered))
    rows = int(known.sum())
    if rows < max(MIN_STRETCH, MIN_JUDGED_SHARE * len(asked)):
        return 0.0, 0
    one, other = _ranks(asked[known]), _ranks(answered[known])
    if one.std() == 0 or other.std() == 0:
        return 0.0, rows
    return float(np.corrcoef(one, other)[0, 1]), rows


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ranks of values; equal ones have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts).astype(np.float64)
    return np.asarray((last - (counts - 1) / 2)[inverse])


def _length(text: str) -> float:
    return float(len(text))


def _numbers(text: str) -> list[float]:
    digits = [one.replace(",", "") for one in NUMBER.findall(text)]
    return [float(one) for one in digits if len(one) <= MAX_DIGITS]


def _product_of_two_largest_numbers(text: str) -> float:
    """How large a result a problem may have; NaN without two numbers."""
    numbers = sorted(_numbers(text), reverse=True)
    return (1 + numbers[0]) * (1 + numbers[1]) if len(numbers) > 1 else math.nan


def _sum_of_numbers(text: str) -> float:
    numbers = _numbers(text)
    return sum(numbers) if numbers else math.nan


def _last_number(text: str) -> float:
    numbers = _numbers(text)
    return numbers[-1] if numbers else math.nan


QUANTITIES: tuple[tuple[str, Callable[[str], float], Callable[[str], float]], ...] = (
    ("the lengths of questions and answers", _length, _length),
    ("the numbers of questions and results", _sum_of_numbers, _last_number),
    ("the numbers of questions and results", _product_of_two_largest_numbers, _last_number),
)
"""What is compared, of a question and of its answer"""
