"""Links a question to the answer that shares a number with it: an order, a part, a day.

Order numbers, part numbers, days and references to cases are drawn from so many that two rows seldom have the same by
chance. How often they do is counted in the same rows: by numbers that stand in two questions and no answer, or the
reverse.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

DATE = re.compile(
    r"\b\d{1,2}\.? [^\W\d_]{3,12}\.? \d{4}\b|\b[^\W\d_]{3,12}\.? \d{1,2},? \d{4}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
)
"""A day as it is written, in any language: its parts alone stand in many rows, and the whole in few"""
IDENTIFIER = re.compile(r"[^\W_][\w-]{2,40}")
# Two digits are counts, days and percents, which coincide.
MIN_DIGITS = 3


class NumberLinks(NamedTuple):
    """The links of some rows."""

    own: int
    """Numbers of a question that stand in its own answer"""
    away: tuple[tuple[int, int], ...]
    """(question, answer) of each number that stands in one answer of another row"""
    by_chance: int
    """Numbers that stand twice on one side, and not on the other"""


def link_questions_to_answers_by_number(
    questions: Sequence[str], answers: Sequence[str]
) -> NumberLinks:
    """The links between a question and an answer that share a number which stands in no other
    question or answer.
    """
    asked, answered = _rows_by_number(questions), _rows_by_number(answers)
    own, away, by_chance = 0, [], 0
    for number in sorted(asked.keys() | answered.keys()):
        of_questions, of_answers = asked.get(number, []), answered.get(number, [])
        if len(of_questions) == len(of_answers) == 1:
            if of_questions == of_answers:
                own += 1
            else:
                away.append((of_questions[0], of_answers[0]))
        elif not (of_questions and of_answers) and len(of_questions) + len(of_answers) == 2:
            by_chance += 1
    return NumberLinks(own, tuple(away), by_chance)


def _rows_by_number(texts: Sequence[str]) -> dict[str, list[int]]:
    """The rows in which each number stands."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(texts):
        folded = text.casefold()
        for date in dict.fromkeys(DATE.findall(folded)):
            rows[date].append(row)
        for number in dict.fromkeys(IDENTIFIER.findall(folded)):
            if sum(character.isdigit() for character in number) >= MIN_DIGITS:
                rows[number.strip("-")].append(row)
    return rows
