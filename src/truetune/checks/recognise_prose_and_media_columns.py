"""Tells what a column of rows holds: prose or notes, texts or media, and whether a line of a batch
holds it too.

Columns that nothing reads are lost without a word, and most of them are ids, dates and scores that nobody misses. So a
column is told by its name (it sounds like part of the prompt) or by its texts (they are prose). The trade-off: short
columns of an unknown name are missed.
"""

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
# Names that formats, templates and trainers give to such columns; others are told by what they
# hold.
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
        "instruction",
        "prompt",
        "question",
        "answer",
        "output",
        "response",
        "completion",
        "documents",
        "functions",
        "weight",
        "loss_weight",
        "sample_weight",
    )
)
"""Names of columns that sound like part of the prompt or the answer, or like the weight of the row: truetune reads
weights of messages alone, so that a row's own would be 1 for ever."""
# Chosen, not measured. Lines are cut at the limit, so that the beginning of a text is what is left
# of it. At 12 characters greetings would be found in lines of other rows; at 48 many short texts
# would never be looked for as they stand.
BEGINNING_CHARACTERS = 24
"""Characters of a text's beginning that a line must hold"""
# Chosen, not measured. Templates write lists and JSON with other signs and leave keys out, but keep
# most words. At 0.4 the common words of two rows would do; at 1 a single word that was cut would
# hide the text.
MIN_WORD_SHARE = 0.8
"""Share of a text's words of five letters or more that a line must hold otherwise"""
# Chosen, not measured. Titles and names have fewer words, links and paths fewer than six. At half,
# titles would count as prose; at double, short questions would not.
MIN_PROSE_CHARACTERS, MIN_PROSE_WORDS = 40, 6
"""A text of so many characters and words is no id, source or date"""
UNSPACED_SCRIPT = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
"""Characters of scripts without spaces between words: Japanese, Chinese, Thai"""
SCANNED_CHARACTERS = 400
"""Characters of a text that are looked at for them"""
# By rule of thumb: a word of Chinese or Japanese has two to three characters.
MIN_UNSPACED_CHARACTERS = 16
"""So many of them are six words or more"""


def does_batch_hold_media(column: str, keys: Iterable[str]) -> bool:
    """Does the batch hold this column's images, videos or sounds, as numbers?"""
    held = [names for kind, names in MEDIA_KEYS.items() if column.lower().startswith(kind)]
    return any(key.startswith(names) for names in held for key in keys)


def columns_and_texts_of_row(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(column, text) of each text in a row, also inside lists and objects."""
    return ((column, text) for column, value in row.items() for text in _texts_without_roles(value))


def _texts_without_roles(value: Any) -> Iterator[str]:
    """The texts in a value, also inside lists and objects, without the roles of messages."""
    if isinstance(value, str) and value.strip():
        yield value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if key not in ("role", "from"):
                yield from _texts_without_roles(item)


def is_mostly_in_rendering(text: str, line: str) -> bool:
    """Does a rendered line hold the beginning of a text, or most of its words?

    A list or JSON is written otherwise when it is rendered.
    """
    joined = single_spaced(text)
    words = set(re.findall(r"\w{5,}", joined))
    if joined[:BEGINNING_CHARACTERS] in line:
        return True
    return len(words) > 1 and sum(word in line for word in words) >= MIN_WORD_SHARE * len(words)


def single_spaced(text: str) -> str:
    """The text with single spaces."""
    return " ".join(text.split())


def is_prose(text: str) -> bool:
    """Is a text long enough to be prose, and no id, source or date?"""
    if len(UNSPACED_SCRIPT.findall(text[:SCANNED_CHARACTERS])) >= MIN_UNSPACED_CHARACTERS:
        return True
    return len(text) >= MIN_PROSE_CHARACTERS and len(text.split()) >= MIN_PROSE_WORDS
