"""Answers that are JSON objects beside references of that kind, field by field.

A score of fields depends on what it is divided by. Over the fields that an answer gives it is a precision, and what the
answer leaves out costs nothing; over those of the reference it is what a user of the fields gets. Fields of inner
objects count one by one (`buyer.name`); lists are compared as a whole.

The trade-off: a list with one wrong item is wrong, and a value in other words is wrong: only white space, case and the
spelling of numbers are forgiven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truetune.generation.answer_parsers_named_by_user import JSON_PARSER, make_parser, try_parse

EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})
"""Values that say nothing: a field that has one is as good as left out"""
# Chosen, not measured: objects of extractions are two or three levels deep.
MAX_DEPTH = 4
MAX_FIELDS = 500
"""Of one object; chosen, not measured: more are a table, whose fields have no names of their own"""
# Both chosen, not measured: of fewer rows a share says little, and a fifth of the answers may be refusals.
MIN_ROWS = 8
"""Rows whose answer and reference are both objects"""
MIN_OBJECT_SHARE = 0.8
"""Share of the rows whose answer and reference are both objects"""


@dataclass(slots=True)
class FieldScores:
    """Fields of answers, over all rows whose answer and reference are objects."""

    rows: int = 0
    expected: Counter[str] = field(default_factory=Counter)
    """Field -> references that have it"""
    missing: Counter[str] = field(default_factory=Counter)
    """Field -> answers that leave it out"""
    added: Counter[str] = field(default_factory=Counter)
    """Field -> answers that have it and whose reference has not"""
    right: Counter[str] = field(default_factory=Counter)
    incomplete: list[int] = field(default_factory=list)
    """Numbers of the rows that leave a field out"""
    overfull: list[int] = field(default_factory=list)
    """Numbers of the rows that add a field"""

    @property
    def answer_field_count(self) -> int:
        """Fields that the answers give."""
        return self.expected.total() - self.missing.total() + self.added.total()

    @property
    def precision(self) -> float:
        """Right fields over the fields that the answers give."""
        return self.right.total() / self.answer_field_count if self.answer_field_count else 0.0

    @property
    def recall(self) -> float:
        """Right fields over those of the references."""
        return self.right.total() / self.expected.total() if self.expected.total() else 0.0


def score_fields(answers: Sequence[str], references: Sequence[str]) -> FieldScores | None:
    """The fields of answers beside those of their references; None where too few rows have both as objects."""
    parse = make_parser(JSON_PARSER)
    scores = FieldScores()
    asked = 0
    for number, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        if not reference.lstrip().startswith("{"):
            asked += bool(reference.strip())
            continue
        asked += 1
        wanted, given = (_fields_of_object(try_parse(parse, text)) for text in (reference, answer))
        if wanted is not None and given is not None:
            _count_fields_of_row(scores, number, wanted, given)
    is_enough = scores.rows >= max(MIN_ROWS, MIN_OBJECT_SHARE * asked)
    return scores if is_enough and scores.expected else None


def share_of_right_fields(answer: str, reference: str) -> float | None:
    """The share of the fields that an answer gives which are those of its reference; None where it gives none, or one
    of the two is no object."""
    parse = make_parser(JSON_PARSER)
    wanted, given = (_fields_of_object(try_parse(parse, text)) for text in (reference, answer))
    if not wanted or not given:
        return None
    return sum(
        _are_values_same_but_for_spelling(value, wanted.get(name)) for name, value in given.items()
    ) / len(given)


def _count_fields_of_row(
    scores: FieldScores, number: int, wanted: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Count the fields of one row."""
    scores.rows += 1
    scores.expected.update(wanted.keys())
    missing, added = wanted.keys() - given.keys(), given.keys() - wanted.keys()
    scores.missing.update(missing)
    scores.added.update(added)
    scores.right.update(
        name
        for name in wanted.keys() & given.keys()
        if _are_values_same_but_for_spelling(given[name], wanted[name])
    )
    if missing:
        scores.incomplete.append(number)
    if added:
        scores.overfull.append(number)


def _fields_of_object(value: Any) -> dict[str, Any] | None:
    """The fields of an object that say something; None where a value is no object."""
    if not isinstance(value, dict):
        return None
    fields = dict(_flatten_fields(value, "", MAX_DEPTH))
    return fields if len(fields) <= MAX_FIELDS else None


def _flatten_fields(value: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Name and value of each field, those of inner objects after a point."""
    for name, inner in value.items():
        if isinstance(inner, dict) and inner and depth:
            yield from _flatten_fields(inner, f"{before}{name}.", depth - 1)
        elif inner not in EMPTY_VALUES:
            yield f"{before}{name}", inner


def _are_values_same_but_for_spelling(one: Any, other: Any) -> bool:
    """Are two values one, white space, case and the spelling of numbers aside?"""
    if one == other:
        return True
    texts = [" ".join(str(value).split()).casefold() for value in (one, other)]
    if texts[0] == texts[1]:
        return True
    try:
        return float(texts[0]) == float(texts[1])
    except ValueError:
        return False
