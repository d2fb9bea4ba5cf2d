"""In which form each field of JSON answers is written: its type, its dates and numbers, the spelling of its name.

Each value of an object becomes a path (`order.total`, `items[].price`) and a form. What a form is taken for is what a
program that reads the field would have to tell apart: a number that is a text, a day before or after its month.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_DEPTH, MAX_ITEMS = 4, 50
"""Levels of an object, and items of a list, that are looked at"""
NUMBER_WITH_POINT = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[-+]?\d+(?:\.\d+)?")
NUMBER_WITH_COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d{1,2}")
NUMBER_WITH_UNIT = re.compile(
    r"(?:[$\u20ac\u00a3\u00a5]|USD|EUR)\s?\d[\d.,]*|\d[\d.,]*\s?(?:[$\u20ac\u00a3\u00a5%]|[A-Za-z]{1,8})"
)
DATES = (
    (re.compile(r"\d{4}-\d{2}-\d{2}"), "a date as 2024-03-05"),
    (re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*"), "a date with a time"),
    (re.compile(r"\d{1,2}/\d{1,2}/\d{2,4}"), "a date as 05/03/2024"),
    (re.compile(r"\d{1,2}\.\d{1,2}\.\d{2,4}"), "a date as 05.03.2024"),
    (re.compile(r"\d{1,2}-\d{1,2}-\d{4}"), "a date as 05-03-2024"),
    (re.compile(r"\d{4}/\d{1,2}/\d{1,2}"), "a date as 2024/03/05"),
    (
        re.compile(r"[A-Z][a-z]{2,8}\.? \d{1,2},? \d{4}|\d{1,2}\.? [A-Z][a-z]{2,8}\.? \d{4}"),
        "a date in words",
    ),
)
BOOLEANS = frozenset(("true", "false", "yes", "no"))
TEXT, NUMBER, BOOLEAN, LIST, OBJECT, NULL = (
    "a text",
    "a number",
    "true or false",
    "a list",
    "an object",
    "null",
)


class FieldForm(NamedTuple):
    """One value of an object: where it is, and how it is written."""

    path: str
    form: str
    text: str
    """The value, where it is a text"""


def forms_of_fields(value: Any) -> Iterator[FieldForm]:
    """The form of each value of an object, and of the objects in it; nothing of another value.

    Args:
        value: as JSON was read.
    """
    if isinstance(value, dict):
        yield from _forms_within(value, "", MAX_DEPTH)


def _forms_within(value: dict[str, Any], above: str, depth: int) -> Iterator[FieldForm]:
    """The forms of an object's values, whose path begins with `above`."""
    for name, one in value.items():
        path = f"{above}{name}"
        yield FieldForm(path, form_of_value(one), one if isinstance(one, str) else "")
        if depth and isinstance(one, dict):
            yield from _forms_within(one, f"{path}.", depth - 1)
        if depth and isinstance(one, list):
            for item in one[:MAX_ITEMS]:
                if isinstance(item, dict):
                    yield from _forms_within(item, f"{path}[].", depth - 1)


def form_of_value(value: Any) -> str:
    """What a value is, as a message says it."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int | float):
        return NUMBER
    if isinstance(value, list):
        return LIST
    if isinstance(value, dict):
        return OBJECT
    return _form_of_text(str(value).strip())


def _form_of_text(text: str) -> str:
    """What a text is: a date or a number in some form, or words."""
    for pattern, form in DATES:
        if pattern.fullmatch(text):
            return form
    if NUMBER_WITH_POINT.fullmatch(text):
        return "a number as a text"
    if NUMBER_WITH_COMMA.fullmatch(text):
        return "a number as a text with a decimal comma"
    if NUMBER_WITH_UNIT.fullmatch(text):
        return "a number with its unit"
    return "true or false as a text" if text.lower() in BOOLEANS else TEXT


def do_forms_contradict(one: str, other: str) -> bool:
    """Would a program have to tell two forms apart, and is neither simply another kind of content?"""
    if NULL in (one, other) or one == other:
        return False
    if OBJECT in (one, other):
        return False
    if one == BOOLEAN or other == BOOLEAN:
        return {one, other} == {BOOLEAN, "true or false as a text"}
    if LIST in (one, other):
        return TEXT in (one, other)
    are_dates = one.startswith("a date") + other.startswith("a date")
    if are_dates:
        return are_dates == 2
    return TEXT not in (one, other) and not {one, other} & {"true or false as a text"}


def plain_name(path: str) -> str:
    """The name of a field without the marks in which spellings differ: `orderDate` and `order_date` are one."""
    return re.sub(r"[_\- ]", "", path).casefold()
