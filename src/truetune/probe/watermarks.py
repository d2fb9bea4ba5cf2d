"""Marks: a copy of a row in which every text ends with a string of its own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

WORDS = (
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
"""Keys whose texts steer the template or the trainer, and are not themselves read as text"""
MAX_TEXT_CHARS = 600
"""Characters of a text that are kept"""
MAX_ROW_CHARS = 1600
"""Characters of a row that are kept"""

_numbers = itertools.count(0)


class Watermark(NamedTuple):
    """The string put into one text."""

    path: str
    """`messages[1].content`"""
    role: str
    """Role of the message, else empty"""
    text: str


def add_watermarks(row: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Watermark, ...]]:
    """The copied row, and its marks in order. Numbers, JSON, and what steers the template stay as they are."""
    texts = sum(1 for _ in _prose_texts(row))
    marks: list[Watermark] = []
    return _copy_with_watermarks(
        row, "", "", max(min(MAX_TEXT_CHARS, MAX_ROW_CHARS // max(texts, 1)), 40), marks
    ), tuple(marks)


def tokenized_columns(row: Mapping[str, Any]) -> set[str]:
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
    """The texts of a row by their field (see `field_name`), those of one field one a line, KEPT characters of each."""
    found: dict[str, list[str]] = {}
    for name, text in _named_texts(row, "", ""):
        found.setdefault(name, []).append(text[:MAX_TEXT_CHARS])
    return {name: "\n".join(texts) for name, texts in found.items()}


def field_name(path: str, role: str) -> str:
    """`output`, `messages (assistant)`: the column of a text, and its role where the column holds several."""
    column = re.split(r"[.\[]", path, maxsplit=1)[0]
    return f"{column} ({role})" if role else column


def _named_texts(value: Any, column: str, role: str) -> Iterator[tuple[str, str]]:
    """(field, text) of each text that a mark would be put into."""
    if isinstance(value, str) and _is_prose(value):
        yield field_name(column, role), value
    elif isinstance(value, Mapping):
        said = str(value.get("role") or value.get("from") or role) if column else role
        for key, item in value.items():
            if key not in CONTROL_KEYS:
                yield from _named_texts(item, column or str(key), said)
    elif isinstance(value, list):
        for item in value:
            yield from _named_texts(item, column, role)


def _copy_with_watermarks(
    value: Any, path: str, role: str, kept: int, marks: list[Watermark]
) -> Any:
    if isinstance(value, str) and _is_prose(value):
        marks.append(Watermark(path, role, _watermark_text(next(_numbers))))
        half = kept // 2
        text = value if len(value) <= kept else f"{value[:half]} {value[-half:]}"
        return f"{text.rstrip()} {marks[-1].text}"
    if isinstance(value, Mapping):
        said = str(value.get("role") or value.get("from") or role)
        return {
            k: v
            if k in CONTROL_KEYS
            else _copy_with_watermarks(v, f"{path}.{k}" if path else k, said, kept, marks)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [
            _copy_with_watermarks(v, f"{path}[{i}]", role, kept, marks) for i, v in enumerate(value)
        ]
    return value


def _prose_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and _is_prose(value):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in CONTROL_KEYS:
                yield from _prose_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _prose_texts(item)


def _is_prose(text: str) -> bool:
    """Not empty, no number, no JSON."""
    return (
        bool(text.strip())
        and text.strip()[0] not in "{["
        and any(character.isalpha() for character in text)
    )


def _watermark_text(number: int) -> str:
    """Ordinary words and digits: each tokenizer spells them again as they were."""
    first, second = (
        WORDS[number % len(WORDS)],
        WORDS[(number // len(WORDS) + 7 * number + 3) % len(WORDS)],
    )
    return f"{first} {second} {1000 + number} {WORDS[(number + 11) % len(WORDS)]}"
