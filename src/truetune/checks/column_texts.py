"""What a column of the given rows holds, and whether a batch holds it too: its texts, or its images as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

MEDIA_KEYS = {
    "image": ("pixel", "image"),
    "video": ("pixel", "video"),
    "audio": ("audio", "input_features", "input_values"),
}
"""Beginnings of columns of rows -> beginnings of the batch's keys that hold what stands in them"""
PROMPT_COLUMNS = frozenset(
    (
        "system",
        "system_prompt",
        "context",
        "input",
        "history",
        "reasoning",
        "thinking",
        "reasoning_content",
        "tools",
    )
    + (
        "instruction",
        "prompt",
        "question",
        "answer",
        "output",
        "response",
        "completion",
        "documents",
        "functions",
    )
    + ("weight", "loss_weight", "sample_weight")
)
"""Names of columns that sound like part of the prompt or the answer, or like the weight of the row: truetune reads
weights of messages alone, so that a row's own would be 1 for ever."""
BEGINNING_CHARACTERS = 24
MIN_WORD_SHARE = 0.8
MIN_PROSE_CHARACTERS, MIN_PROSE_WORDS = 40, 6
"""A text of so many characters and words is no id, source or date"""
UNSPACED_SCRIPT = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
"""Characters of scripts without spaces between words: Japanese, Chinese, Thai"""
SCANNED_CHARACTERS = 400
"""Characters of a text that are looked at for them"""
MIN_UNSPACED_CHARACTERS = 16
"""So many of them are six words or more"""


def holds_media(column: str, keys: Iterable[str]) -> bool:
    """Does the batch hold this column's images, videos or sounds, as numbers?"""
    held = [names for kind, names in MEDIA_KEYS.items() if column.lower().startswith(kind)]
    return any(key.startswith(names) for names in held for key in keys)


def texts_of_row(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(column, text) of each text in a row, also inside lists and objects."""
    return ((column, text) for column, value in row.items() for text in _strings_in(value))


def _strings_in(value: Any) -> Iterator[str]:
    """The texts in a column, without the roles of messages."""
    if isinstance(value, str) and value.strip():
        yield value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if key not in ("role", "from"):
                yield from _strings_in(item)


def is_in_line(text: str, line: str) -> bool:
    """Does the line begin to say it, or hold most of its words (a list or JSON is written anew)?"""
    joined = single_spaced(text)
    words = set(re.findall(r"\w{5,}", joined))
    if joined[:BEGINNING_CHARACTERS] in line:
        return True
    return len(words) > 1 and sum(word in line for word in words) >= MIN_WORD_SHARE * len(words)


def single_spaced(text: str) -> str:
    """The text with single spaces."""
    return " ".join(text.split())


def is_prose(text: str) -> bool:
    """Is it long enough to be no id, source or date?"""
    if len(UNSPACED_SCRIPT.findall(text[:SCANNED_CHARACTERS])) >= MIN_UNSPACED_CHARACTERS:
        return True
    return len(text) >= MIN_PROSE_CHARACTERS and len(text.split()) >= MIN_PROSE_WORDS
