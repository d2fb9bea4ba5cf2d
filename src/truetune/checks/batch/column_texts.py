"""What a column of the given rows holds, and whether a batch holds it too: its texts, or its images as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

MEDIA = {
    "image": ("pixel", "image"),
    "video": ("pixel", "video"),
    "audio": ("audio", "input_features", "input_values"),
}
"""Beginnings of columns of rows -> beginnings of the batch's keys that hold what stands in them"""
BEGIN = 24
MOSTLY = 0.8
LONG, WORDS = 40, 6
"""A text of so many characters and words is no id, source or date"""
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
"""Characters of scripts without spaces between words: Japanese, Chinese, Thai"""
KEPT = 400
"""Characters of a text that are looked at for them"""
CHARACTERS = 16
"""So many of them are six words or more"""


def is_held(column: str, keys: Iterable[str]) -> bool:
    """Does the batch hold this column's images, videos or sounds, as numbers?"""
    held = [names for kind, names in MEDIA.items() if column.lower().startswith(kind)]
    return any(key.startswith(names) for names in held for key in keys)


def texts(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(column, text) of each text in a row, also inside lists and objects."""
    return ((column, text) for column, value in row.items() for text in _strings(value))


def _strings(value: Any) -> Iterator[str]:
    """The texts in a column, without the roles of messages."""
    if isinstance(value, str) and value.strip():
        yield value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if key not in ("role", "from"):
                yield from _strings(item)


def stands_in(text: str, line: str) -> bool:
    """Does the line begin to say it, or hold most of its words (a list or JSON is written anew)?"""
    joined = plain(text)
    words = set(re.findall(r"\w{5,}", joined))
    if joined[:BEGIN] in line:
        return True
    return len(words) > 1 and sum(word in line for word in words) >= MOSTLY * len(words)


def plain(text: str) -> str:
    """The text with single spaces."""
    return " ".join(text.split())


def is_prose(text: str) -> bool:
    """Is it long enough to be no id, source or date?"""
    if len(UNSPACED.findall(text[:KEPT])) >= CHARACTERS:
        return True
    return len(text) >= LONG and len(text.split()) >= WORDS
