"""Watermarks: a copy of a row in which every text ends with a unique string, so that it can be recognised later.

`add_watermarks` copies a row, appends to each text a few ordinary words and a number that no other text has, and says
which string stands at which path. What becomes of the strings in the trainer's batches says which fields are learned,
read or lost (`truetune.probe.trace_canary_row_through_trainer`).

Trade-off: the strings are words, not random characters. They could in principle occur in the data, but every tokenizer
spells them back as they were (`test_tokenizers_spell_marks_as_they_were`), and a program that filters strange text
keeps them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# Common English nouns without accents, which tokenizers of other languages spell back as well.
MARK_WORDS = (
    "harbour",
    "lantern",
    "velvet",
    "meadow",
    "copper",
    "island",
    "window",
    "garden",
    "silver",
    "river",
    "pepper",
    "castle",
    "orange",
    "winter",
    "button",
    "marble",
    "forest",
    "butter",
    "candle",
    "summer",
    "ladder",
    "pillow",
)

# Keys whose texts steer the template or the trainer, and are not themselves read as text. With a watermark in them the
# template would refuse the role, or the trainer the label (`test_marks_keep_what_steers_the_trainer`).
CONTROL_KEYS = frozenset(
    (
        "role",
        "from",
        "type",
        "name",
        "id",
        "tool_call_id",
        "label",
        "kto_tag",
        "finish_reason",
        "model",
    )
)

# Characters of one text, and of a whole row, that are kept. Chosen, not measured: 1,600 characters are about 400
# tokens, so that a canary fits the usual limit of 1,024 tokens with its template. With twice as much, long rows would
# be cut and reported as lost to the limit; with half, a formatting function that reads a certain part of a text may
# not find it.
MAX_TEXT_CHARS = 600
MAX_ROW_CHARS = 1600
# Of a row with many texts each keeps so much, so that a function that looks for content still has some.
MIN_TEXT_CHARS = 40

_numbers = itertools.count(0)


class Watermark(NamedTuple):
    """The string put into one text."""

    path: str
    """`messages[1].content`"""
    role: str
    """Role of the message, else empty"""
    text: str


def add_watermarks(row: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Watermark, ...]]:
    """Copy a row with a watermark in each text; numbers, JSON, and what steers the template stay as they are.

    Returns:
        The copied row, with long texts shortened, and its watermarks in the order of the row.
    """
    text_count = sum(1 for _ in _texts_that_get_watermark(row))
    share = min(MAX_TEXT_CHARS, MAX_ROW_CHARS // max(text_count, 1))
    marks: list[Watermark] = []
    copied = _copy_with_watermarks(row, "", "", max(share, MIN_TEXT_CHARS), marks)
    return copied, tuple(marks)


def columns_that_hold_ids_or_labels(row: Mapping[str, Any]) -> set[str]:
    """Columns that hold ids or labels already: the texts beside them are read by no one any more."""
    return {
        name
        for name, value in row.items()
        if name.endswith(("_ids", "labels"))
        and isinstance(value, list)
        and value
        and isinstance(value[0], int)
    }


def texts_by_field(row: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a row by their field (see `field_name`): those of one field one a line, each shortened."""
    texts: dict[str, list[str]] = {}
    for name, text in _texts_to_watermark_with_field_names(row, "", ""):
        texts.setdefault(name, []).append(text[:MAX_TEXT_CHARS])
    return {name: "\n".join(lines) for name, lines in texts.items()}


def field_name(path: str, role: str) -> str:
    """`output`, `messages (assistant)`: the column of a text, and its role where the column holds several."""
    column = re.split(r"[.\[]", path, maxsplit=1)[0]
    return f"{column} ({role})" if role else column


def _texts_to_watermark_with_field_names(
    value: Any, column: str, role: str
) -> Iterator[tuple[str, str]]:
    """Yield (field, text) of each text that a watermark would be put into."""
    if isinstance(value, str) and _gets_watermark(value):
        yield field_name(column, role), value
    elif isinstance(value, Mapping):
        inner_role = _role_of_message_or_outer(value, role) if column else role
        for key, item in value.items():
            if key not in CONTROL_KEYS:
                yield from _texts_to_watermark_with_field_names(
                    item, column or str(key), inner_role
                )
    elif isinstance(value, list):
        for item in value:
            yield from _texts_to_watermark_with_field_names(item, column, role)


def _copy_with_watermarks(
    value: Any, path: str, role: str, max_chars: int, marks: list[Watermark]
) -> Any:
    """Copy a value at a path of the row; the watermarks that are put into it are added to `marks`."""
    if isinstance(value, str) and _gets_watermark(value):
        marks.append(Watermark(path, role, _watermark_text(next(_numbers))))
        # Beginning and end are kept: formatting functions split texts at markers that stand there.
        half = max_chars // 2
        text = value if len(value) <= max_chars else f"{value[:half]} {value[-half:]}"
        return f"{text.rstrip()} {marks[-1].text}"
    if isinstance(value, Mapping):
        inner_role = _role_of_message_or_outer(value, role)
        copied = {}
        for key, item in value.items():
            inner_path = f"{path}.{key}" if path else key
            copied[key] = (
                item
                if key in CONTROL_KEYS
                else _copy_with_watermarks(item, inner_path, inner_role, max_chars, marks)
            )
        return copied
    if isinstance(value, list):
        return [
            _copy_with_watermarks(item, f"{path}[{i}]", role, max_chars, marks)
            for i, item in enumerate(value)
        ]
    return value


def _role_of_message_or_outer(message: Mapping[str, Any], outer: str) -> str:
    """The role that a message names (`from` in ShareGPT's format), else that of what it stands in."""
    return str(message.get("role") or message.get("from") or outer)


def _texts_that_get_watermark(value: Any) -> Iterator[str]:
    """Yield each text that gets a watermark."""
    if isinstance(value, str) and _gets_watermark(value):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in CONTROL_KEYS:
                yield from _texts_that_get_watermark(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_that_get_watermark(item)


def _gets_watermark(text: str) -> bool:
    """Not empty, no number, no JSON: code that parses those would fail on a watermark."""
    return (
        bool(text.strip())
        and text.strip()[0] not in "{["
        and any(character.isalpha() for character in text)
    )


def _watermark_text(number: int) -> str:
    """Ordinary words and digits: each tokenizer spells them again as they were.

    The number alone makes the text unique; the words vary so that no two neighbouring watermarks begin alike.
    """
    first = MARK_WORDS[number % len(MARK_WORDS)]
    # 7 and 22 words have no common divisor, so the pairs repeat only after 22 * 22 watermarks.
    second = MARK_WORDS[(number // len(MARK_WORDS) + 7 * number + 3) % len(MARK_WORDS)]
    return f"{first} {second} {1000 + number} {MARK_WORDS[(number + 11) % len(MARK_WORDS)]}"
