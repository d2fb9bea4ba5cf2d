"""Finds rows for which a reward function pays all wrong answers, or empty ones, as the right answers of other rows.

How it works: the function is called with right answers, with wrong ones and with empty ones, of rows whose references
look different. It tells right from wrong in some rows. Where it pays what is wrong or empty in others, it could not
read their references: each answer gets a reward, or each answer that can't be read either.

The trade-off: rows whose references look as others do are not called; nothing is said where a score is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.reward_functions_rejecting_all_references import (
    MIN_ROWS,
    ComparingRewardRun,
    answers_ending_in,
    final_result_of_row,
    named_columns_of_row,
    reward_functions_with_rows,
    rewards_for_answers,
)
from truetune.data.script_rows.compute_dataset_methods_on_known_rows import Place, Row
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import Function

WRONG_RESULT = "-70913"
"""Of no row, as far as can be: five digits with a sign"""
EMPTY_ANSWERS = ("", "I don't know.")
MAX_READ, PER_KIND, MAX_CALLED = 1_000, 2, 12
"""Rows whose references are read, rows that are called of those that look alike, and rows that are called. Chosen,
not measured: a set has few kinds of references, and each call takes some milliseconds"""


@dataclass(frozen=True, slots=True)
class EveryAnswerPaid:
    """A reward function that pays all wrong answers, or empty ones, of some rows."""

    function: Function
    rows: int
    """Rows that were called"""
    paid: int
    """Those whose wrong or empty answers are paid"""
    pay: float
    reference: str
    """Of the first such row; empty where no column of it is a text"""
    place: Place | None


def rewards_for_unreadable_references(module: Module) -> Iterator[EveryAnswerPaid]:
    """The reward functions of a script that pay what is wrong or empty in some rows, and not in others."""
    for run, function, rows in reward_functions_with_rows(module, _rows_that_look_different):
        every_answer_paid = _every_answer_paid(run, module, function, rows)
        if every_answer_paid is not None:
            yield every_answer_paid


def _rows_that_look_different(rows: list[Row]) -> list[Row]:
    """Two rows of each kind of reference, the kinds in their order, and the first rows where there are few."""
    by_marks: dict[str, list[Row]] = {}
    for row in rows[:MAX_READ]:
        alike = by_marks.setdefault(_marks_of_reference(row), [])
        if len(alike) < PER_KIND:
            alike.append(row)
    chosen = [row for alike in by_marks.values() for row in alike]
    chosen += [row for row in rows[:MAX_CALLED] if row not in chosen]
    return chosen[:MAX_CALLED]


def _marks_of_reference(row: Row) -> str:
    """The marks and signs of a row's columns, prompts left out: digits, letters and repetitions as one of them."""
    texts = []
    for name, value in named_columns_of_row(row).items():
        plain = constant_of(value)
        if name not in ("prompt", "question", "problem", "instruction") and isinstance(plain, str):
            marks = re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", plain))
            texts.append("".join(dict.fromkeys(marks)))
    return "\n".join(texts)


def _every_answer_paid(
    run: ComparingRewardRun, module: Module, function: Function, rows: list[Row]
) -> EveryAnswerPaid | None:
    """The rows of one function whose wrong or empty answers are paid; None where there are none, or it is not known."""
    full = 0.0
    told_apart = 0
    lowest_pay: list[tuple[Row, float]] = []
    for row in rows:
        columns = named_columns_of_row(row)
        wrong = rewards_for_answers(
            run, function, columns, answers_ending_in(module.text, WRONG_RESULT)
        )
        empty = rewards_for_answers(run, function, columns, list(EMPTY_ANSWERS))
        if not wrong or not empty:
            continue
        final = final_result_of_row(columns)
        answers = answers_ending_in(module.text, final) if final is not None else []
        right = rewards_for_answers(run, function, columns, answers) if answers else []
        if right and max(right) > max(*wrong, *empty):
            told_apart += 1
            full = max(full, *right)
        lowest_pay.append((row, max(min(wrong), min(empty))))
    paid = [row for row, lowest in lowest_pay if lowest >= full > 0]
    # One row that is told apart may be told by chance.
    if not paid or told_apart < MIN_ROWS - 1:
        return None
    return EveryAnswerPaid(
        function, len(lowest_pay), len(paid), full, _reference_of(paid[0]), paid[0].place
    )


def _reference_of(row: Row) -> str:
    """The last column of a row that is a text, prompts left out; empty without one."""
    texts = [
        plain
        for name, value in named_columns_of_row(row).items()
        if isinstance(plain := constant_of(value), str) and name not in ("prompt", "question")
    ]
    return texts[-1] if texts else ""
