"""Compares the first rows of a file with all rows by kind: by a column of few values, the system
prompt, or the length of answers.

How it works: a head of a file is compared with the whole file. A value that the whole file has and
the head has not is evidence where as many rows drawn at random would have it; so are answers that
are all much shorter, or longer, than those of the other rows.

The trade-off: a column counts by its name, for a file is often sorted by a number or a date that
says nothing of what a row asks for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import comb
from statistics import median
from typing import Any, NamedTuple

from truetune.data.answering_roles import is_answering_role

LABEL_COLUMN = re.compile(
    r"(?:\w+_)?(?:labels?|class|category|target|answer|gold|expected|intent|sentiment|reference|output|completion|"
    r"verdict|topic|y)",
    re.I,
)
"""Columns whose values are what a model has to say"""
KIND_COLUMN = re.compile(
    r"(?:\w+[_.])?(?:tasks?|task_?(?:name|type)|types?|kind|source|domain|subset|lang|language|dataset|subject|skill|"
    r"genre|style|difficulty|level|split_?name)",
    re.I,
)
"""Columns that say of which kind a row is"""
SYSTEM = "system prompt"
ANSWER_COLUMNS = (
    "completion", "answer", "output", "response", "target", "summary", "chosen", "label", "gold", "reference",
)  # fmt: skip
"""Columns that hold the answer of a row, the first that a row has"""
TURNS = ("messages", "conversations", "completion")
ROLE_KEYS, TEXT_KEYS = ("role", "from"), ("content", "value")
MAX_CHANCE = 1e-3
"""Chance that rows drawn at random lack a label, from which it is the order of the file. Chosen, not measured"""
# Smaller than for labels: the limit is taken from the rows that are judged by it. Chosen, not measured.
MAX_CHANCE_OF_LENGTHS = 1e-6
MIN_RATIO = 3.0
"""How many times longer the answers of the other rows are, or shorter. Chosen, not measured: half as long again is
another topic, three times as long another task"""
SHARE_WITHIN = 0.95
"""Of the head's answers, those that are as short (long) as all: one odd row is no other kind. Chosen, not measured"""


class AnswerLengths(NamedTuple):
    """Words of the answers of a head and of the other rows, in the middle."""

    of_head: float
    of_others: float


def flatten_row_with_system_prompt(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the entries of its dictionaries as columns `name.key`, and with its system
    prompt as a column.
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            flat[name] = value
    system = _system_prompt(row)
    if system is not None:
        flat[SYSTEM] = system
    return flat


def head_values_and_improbably_missing_values(
    cells: Sequence[object], count: int
) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """The values of the first `count` cells, and those that they lack and that chance would have
    brought.
    """
    counts = Counter(map(str, cells))
    held = Counter(map(str, cells[:count]))
    missing = tuple(
        (name, rows)
        for name, rows in counts.most_common()
        if name not in held and (1 - rows / len(cells)) ** count < MAX_CHANCE
    )
    return tuple(held), missing


def differing_answer_lengths(rows: Sequence[Mapping[str, Any]], count: int) -> AnswerLengths | None:
    """The lengths where the answers of the first `count` rows are all of another length than those
    of the others.
    """
    lengths = [len(answer.split()) for row in rows if (answer := answer_of(row)) is not None]
    if len(lengths) < len(rows) or not 0 < count < len(rows):
        return None
    head, others = lengths[:count], lengths[count:]
    middles = AnswerLengths(median(head), median(others))
    smaller, larger = sorted(middles)
    if larger < MIN_RATIO * max(smaller, 1):
        return None
    sign = 1 if middles.of_head < middles.of_others else -1
    signed = sorted(sign * one for one in head)
    within = int(SHARE_WITHIN * count)
    limit = signed[within - 1]
    share = sum(sign * one <= limit for one in lengths) / len(lengths)
    return middles if _chance_of_at_least(count, within, share) < MAX_CHANCE_OF_LENGTHS else None


def _chance_of_at_least(drawn: int, least: int, share: float) -> float:
    """The chance that of rows drawn at random so many or more are of a kind that has this share."""
    return sum(
        comb(drawn, n) * share**n * (1 - share) ** (drawn - n) for n in range(least, drawn + 1)
    )


def answer_of(row: Mapping[str, Any]) -> str | None:
    """The answer of a row: its last turn where a model speaks, or a column of that name; None
    without one.
    """
    for name in TURNS:
        turns = row.get(name)
        if isinstance(turns, list) and turns and isinstance(turns[-1], Mapping):
            return _text_of(turns[-1]) if is_answering_role(_role_of(turns[-1])) else None
    for name in ANSWER_COLUMNS:
        if isinstance(row.get(name), str):
            return str(row[name])
    return None


def _system_prompt(row: Mapping[str, Any]) -> str | None:
    """The system prompt of a row of messages, or of a column of that name."""
    for name in TURNS:
        turns = row.get(name)
        if isinstance(turns, list) and turns and isinstance(turns[0], Mapping):
            return _text_of(turns[0]) if _role_of(turns[0]) == "system" else None
    system = row.get("system")
    return system if isinstance(system, str) else None


def _role_of(turn: Mapping[str, Any]) -> object:
    """Who speaks in a turn."""
    return next((turn[key] for key in ROLE_KEYS if key in turn), None)


def _text_of(turn: Mapping[str, Any]) -> str | None:
    """What is said in a turn, where it is text."""
    text = next((turn[key] for key in TEXT_KEYS if key in turn), None)
    return text if isinstance(text, str) else None


def columns_of_kinds_or_labels(columns: Iterator[str]) -> Iterator[str]:
    """The columns that say of which kind a row is, or what its answer is."""
    for column in columns:
        is_kind = KIND_COLUMN.fullmatch(column) or LABEL_COLUMN.fullmatch(column)
        if column == SYSTEM or is_kind:
            yield column


def is_label_column(column: str) -> bool:
    """Are the values of a column labels, which a model has to say?"""
    return LABEL_COLUMN.fullmatch(column) is not None
