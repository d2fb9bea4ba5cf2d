"""Finds the rows of the files that the texts of a trained row come from, and rows that pair texts
of different rows.

How it works: the beginning of each long text of a file is looked up in the texts of the rows that a script makes. Where
one column's text is of one line and another column's text of another line, the row pairs texts of two rows.

The trade-off: only texts whose beginning is of one row alone tell anything, and a row that holds texts of a column of
several lines (earlier turns, examples, a rejected answer) is no evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from truetune.data.script_rows.columns_lost_by_script import texts_in_value
from truetune.data.script_rows.compute_dataset_methods_on_known_rows import Place

PIECE_CHARACTERS = 32
"""Letters and digits of a beginning. Texts that begin alike and are told apart later are not looked at"""
WHOLE_CHARACTERS = 400
"""Of a text that is looked up whole, where its beginning is not its own"""
MISPAIRED_SHARE = 0.9
"""Share of the rows with texts of one line each, from which it is no choice of single rows"""
MIN_ROWS = 8
"""Rows whose texts tell, from which the pairing is judged. Chosen by hand: in fewer, two texts that
two rows share by chance may be nearly all; more would miss the samples that are followed"""


class Mispairing(NamedTuple):
    """Rows that pair texts of different rows of a file."""

    rows: int
    total: int
    """Rows whose texts tell"""
    first: Place
    columns: tuple[str, str]
    lines: tuple[int, int]
    """The lines of these columns' texts in the first such row"""


class TextIndex:
    """The texts of the rows of files by their columns."""

    def __init__(self, rows: Iterable[tuple[Place, Mapping[str, Any]]]) -> None:
        self._places: dict[str, dict[str, Place | None]] = {}
        for place, row in rows:
            for column, value in row.items():
                bare = casefolded_letters_and_digits(value) if isinstance(value, str) else ""
                if len(bare) >= PIECE_CHARACTERS:
                    known = self._places.setdefault(column, {})
                    key = bare[:WHOLE_CHARACTERS]
                    # A text of two rows tells neither.
                    known[key] = place if key not in known else None

    def source_places_by_column(self, row: Mapping[str, Any]) -> dict[str, set[Place]]:
        """For each column, the rows of the file whose text of that column occurs in a row that the
        script makes.
        """
        whole = "\n".join(map(casefolded_letters_and_digits, texts_in_value(row)))
        found: dict[str, set[Place]] = {}
        for column, texts in self._places.items():
            for text, place in texts.items():
                if text in whole and place is not None:
                    found.setdefault(column, set()).add(place)
        return found


def casefolded_letters_and_digits(text: str) -> str:
    """The letters and digits of a text, in one case."""
    return re.sub(r"\W+", "", text).casefold()


def source_place_of_row(found: Mapping[str, set[Place]], known: Place | None) -> Place | None:
    """The row of the file that a row is made of. If its texts are of several rows, it is the one
    known by the order of the rows, otherwise that of its first text.

    Args:
        found: What `source_places_by_column` tells of it.
        known: The place by the order of the rows; None where there is none.
    """
    places = set().union(*found.values())
    if len(places) == 1:
        return next(iter(places))
    if known is not None or not found:
        return known
    # It is made of several rows: it stands where its first text does.
    return min(next(iter(found.values())))


def find_mispairing(found: Iterable[Mapping[str, set[Place]]]) -> Mispairing | None:
    """The rows that pair texts of different rows of a file, if nearly all rows do; None if they do
    not.

    Args:
        found: Of each row that is made, what `source_places_by_column` tells.
    """
    total = mispaired = 0
    first: Mispairing | None = None
    for columns in found:
        if len(columns) < 2 or any(len(places) != 1 for places in columns.values()):
            continue
        total += 1
        single = {name: next(iter(places)) for name, places in columns.items()}
        if len(set(single.values())) == 1:
            continue
        mispaired += 1
        if first is None:
            first = _mispairing_of_row(single)
    if first is None or total < MIN_ROWS or mispaired < MISPAIRED_SHARE * total:
        return None
    return first._replace(rows=mispaired, total=total)


def _mispairing_of_row(place_by_column: Mapping[str, Place]) -> Mispairing:
    """The two columns of a row whose texts are of different rows; no rows are counted yet."""
    name, place = next(iter(place_by_column.items()))
    other = next(one for one, at in place_by_column.items() if at != place)
    lines = (place.line, place_by_column[other].line)
    return Mispairing(0, 0, place, (name, other), lines)
