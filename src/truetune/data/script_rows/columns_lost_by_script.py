"""Finds the columns that a script reads, but of whose texts nothing reaches the trained rows.

How it works: pieces of each text are looked for in the row that comes out, whatever the case, spaces and signs. A
column is lost where no row holds a piece of its text: a later step rewrote the messages, or a variable was
overwritten.

The trade-off: a script reads columns to choose rows as well. So only columns whose texts are long and differ from row
to row are looked at; a score, a name of a source or a language is none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

MIN_ROWS = 5
"""Rows with a long text in a column, from which it may be lost. Chosen by hand: in fewer, a script
that drops single rows' texts on purpose would be taken for one that loses the column; more would
miss small files"""
MIN_CHARACTERS = 16
"""Letters and digits of a text that is looked for; a category has fewer"""
PIECE_CHARACTERS = 24
"""Letters and digits of a piece: an answer often shares some words with its question"""
MAX_PIECES = 12
"""Pieces of one text that are looked for, from its beginning to its end"""
DISTINCT_SHARE = 0.5
"""Share of the rows with a text of their own; columns that are one of some values sort rows"""


def find_lost_columns(
    raw_rows: Iterable[Mapping[str, Any]], trained_rows: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The columns of text of which no row that is trained holds anything.

    Args:
        raw_rows: The rows as they stand in their file, with the columns that the script reads.
        trained_rows: What the trainer is given of each of them, in the same order.
    """
    texts: dict[str, set[str]] = {}
    looked_at: dict[str, int] = {}
    kept: set[str] = set()
    for raw, trained in zip(raw_rows, trained_rows, strict=True):
        long_texts = _long_texts_by_column(raw, kept)
        if not long_texts:
            continue
        whole = "\n".join(map(_letters_and_digits, texts_in_value(trained)))
        for name, bare in long_texts.items():
            looked_at[name] = looked_at.get(name, 0) + 1
            texts.setdefault(name, set()).add(bare)
            if any(piece in whole for piece in _sample_pieces(bare)):
                kept.add(name)
    return tuple(
        name
        for name, rows in looked_at.items()
        if name not in kept and rows >= MIN_ROWS and len(texts[name]) >= DISTINCT_SHARE * rows
    )


def _long_texts_by_column(row: Mapping[str, Any], kept: Set[str]) -> dict[str, str]:
    """Column -> the letters and digits of its text, where they are enough to be looked for.

    Args:
        row: As it stands in its file.
        kept: Columns of which a trained row holds something, which need no more evidence.
    """
    bare = {
        name: _letters_and_digits(value)
        for name, value in row.items()
        if isinstance(value, str) and name not in kept
    }
    return {name: text for name, text in bare.items() if len(text) >= MIN_CHARACTERS}


def _letters_and_digits(text: str) -> str:
    """The letters and digits of a text, in one case."""
    return re.sub(r"\W+", "", text).casefold()


def _sample_pieces(bare: str) -> Iterator[str]:
    """Some pieces of a text, spread over it."""
    last = max(len(bare) - PIECE_CHARACTERS, 0)
    step = max(PIECE_CHARACTERS, last // MAX_PIECES)
    for start in range(0, last + 1, step):
        yield bare[start : start + PIECE_CHARACTERS]


def texts_in_value(value: Any) -> Iterator[str]:
    """The texts in a row, in its lists and dictionaries too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from texts_in_value(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts_in_value(one)
