"""Shortens the text of a file for a page: repeated text, long lines, and more lines than anybody
reads.

What is left out is said in its place, in plain words, as a page must not look as if the file ended
there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

MAX_RECORDS = 16
"""Lines of a file of rows or records that is shown whole"""
MAX_LINE_CHARACTERS = 400
KEPT_AT_BEGINNING, KEPT_AT_END = 240, 100
"""Characters of a longer line"""
_REPEATED = re.compile(r"(.{1,60}?)\1{7,}")
"""Eight times or more: shorter runs are indentation, or rules of hyphens"""
_DRAWN = re.compile(r"[-=_#*. ]+")


@dataclass(frozen=True, slots=True)
class ShortText:
    """A text for a page, and how much of the whole it is."""

    text: str
    lines: int
    """Lines of the file that are shown"""
    all_lines: int


def shorten_text(text: str, records_to_show: int = 0) -> ShortText:
    """Shorten a file's text.

    Args:
        text: all of it.
        records_to_show: so many lines stand for all where there are more than `MAX_RECORDS`; 0: all
            lines are shown.

    Returns:
        The text with lines of at most about `MAX_LINE_CHARACTERS`. Of records, equal ones are
        counted.
    """
    lines = text.splitlines()
    pieces, shown = lines, len(lines)
    if records_to_show:
        pieces = list(_counted_lines(lines))
    if len(pieces) > MAX_RECORDS and records_to_show:
        places = _evenly_spaced_line_indices(len(lines), records_to_show)
        pieces, shown = list(_lines_with_gaps(lines, places)), len(places)
    short = "".join(f"{shorten_line(line)}\n" for line in pieces)
    return ShortText(short, shown, len(lines))


def shorten_line(line: str) -> str:
    """A line in which repeated text is counted, and the middle left out if it is still too long."""
    line = _REPEATED.sub(_replace_repeats_by_count, line)
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    left_out = len(line) - KEPT_AT_BEGINNING - KEPT_AT_END
    return f"{line[:KEPT_AT_BEGINNING]} ... ({left_out:,} characters) ... {line[-KEPT_AT_END:]}"


def _replace_repeats_by_count(found: re.Match[str]) -> str:
    part = found[1]
    if _DRAWN.fullmatch(part) and len(found[0]) < MAX_LINE_CHARACTERS:
        return found[0]
    times = len(found[0]) // len(part)
    return f"{part * 2} ... ({times:,} times in all) ... "


def _counted_lines(lines: list[str]) -> Iterator[str]:
    """Lines, of which equal ones in a row are shown once with their number."""
    for line, equal in groupby(lines):
        count = len(list(equal))
        if count < 4 or not line.strip():
            yield from [line] * count
        else:
            yield line
            yield f"... ({count - 1:,} more lines like this one)"


def _evenly_spaced_line_indices(count: int, shown: int) -> list[int]:
    """The first and the last lines, and others at equal distances: the form of a curve is to be
    seen in them.
    """
    # Around the records of a JSON file, its head and its end say what the file is.
    ends = 3 if shown > 2 * 3 else 1
    step = -(-(count - 2 * ends) // max(1, shown - 2 * ends))
    return sorted({*range(ends), *range(ends, count - ends, step), *range(count - ends, count)})


def _lines_with_gaps(lines: list[str], places: list[int]) -> Iterator[str]:
    for before, at in pairwise([-1, *places]):
        if at - before > 1:
            yield "..."
        yield lines[at]
