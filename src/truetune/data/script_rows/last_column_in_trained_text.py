"""Finds the column of a file whose text comes last in the text that a script trains on: most often
the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class LastColumn(NamedTuple):
    """A column whose text stands in another text, with no other column's behind it."""

    name: str
    text: str
    behind: int
    """Characters of the whole text that follow"""


def columns_with_text_in(columns: Mapping[str, str], whole: str) -> Iterator[str]:
    """The columns whose text occurs in a whole text, in the order of the text."""
    for name, text in columns.items():
        if text.strip() and text.strip() in whole:
            yield name


def find_last_column(columns: Mapping[str, str], whole: str) -> LastColumn | None:
    """The column whose text comes last in a whole text; None if fewer than two occur in it, for
    then nothing comes before it.
    """
    ends: list[tuple[int, int, str]] = []
    for name in columns_with_text_in(columns, whole):
        text = columns[name].strip()
        ends.append((whole.rindex(text) + len(text), len(text), name))
    if len(ends) < 2:
        return None
    # Of two columns that end at one place, such as a label that is the last word of a text, the longer is the text.
    end, _, name = max(ends)
    return LastColumn(name, columns[name].strip(), len(whole) - end)
